"""Which texts are the same problem."""

import time

from stapo_trl.data.identity import fingerprint, normalise
from stapo_trl.data.prompt import PREFIXES, SUFFIXES


def test_typography_and_white_space_do_not_count():
    copies = [
        "Let $x = 1$.  Ann’s “a–b”\n\nFind\tx",
        'Let\u00a0$x=1$. Ann\'s "a-b" Find x\ufeff',
        ' Let $x =1$. Ann\'s "a - b"\r\nFind x ',
        'Let $x=1$. Ann\'s "a\u2212b" Find\u2028x',
    ]
    assert {fingerprint(copy) for copy in copies} == {fingerprint('Let $x=1$. Ann\'s "a-b" Find x')}


def test_full_width_and_accents_do_not_count():
    assert normalise("设Ｘ＝１，求 y") == normalise("设X=1,求y")
    assert normalise("Poincare\u0301") == normalise("Poincaré")


def test_what_changes_the_problem_counts():
    pairs = [
        ("$1 1/2$", "$11/2$"),
        ("$x²$", "$x2$"),
        ("$\\sin x$", "$\\sinx$"),
        ("Let A", "let a"),
        ("$x-1$", "$x+1$"),
        ("1 2", "12"),
    ]
    assert not [(one, other) for one, other in pairs if fingerprint(one) == fingerprint(other)]


def test_instructions_around_a_problem_do_not_count():
    wrapped = f"{PREFIXES[0]}\n\nFind $x$.\n\n{SUFFIXES[0]}"
    assert fingerprint(wrapped) == fingerprint("Find $x$.") == fingerprint(f"Find $x$. {SUFFIXES[1]}")


def test_long_runs_of_spaces_take_no_time():
    begin = time.perf_counter()
    assert normalise("a" + " " * 1_000_000 + "b") == "a b"
    assert time.perf_counter() - begin < 1
