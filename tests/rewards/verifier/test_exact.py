from fractions import Fraction

import pytest

from stapo_trl.rewards.verifier.exact import TooLarge, approximates, decimals, rational, refuse_giants, terminates


def test_rational_reads_numbers_and_nothing_else():
    texts = ["10^{-2}", r"0.1\overline{6}", "x+1"]
    assert [rational(text) for text in texts] == [Fraction(1, 100), Fraction(1, 6), None]


def test_giants_are_refused():
    refuse_giants("x^{100000}")
    with pytest.raises(TooLarge):
        refuse_giants("x^{9^{9^{9}}}")


def test_a_decimal_needs_six_right_digits_to_stand_for_a_fraction():
    assert [decimals(text) for text in ("0.3333", "12", "1/3")] == [4, None, None]
    third = Fraction(1, 3)
    assert approximates(Fraction("0.333333"), 6, third) and not approximates(Fraction("0.333"), 3, third)
    assert terminates(Fraction(1, 1024)) and not terminates(third)
