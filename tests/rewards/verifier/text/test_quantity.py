from stapo_trl.rewards.verifier.text.quantity import canonical_unit, clock, quantity, same_time


def test_a_unit_has_one_spelling():
    units = [("square inches", ""), ("in", "2"), ("miles per hour", ""), ("units", "")]
    assert [canonical_unit(*unit) for unit in units] == ["in^2", "in^2", "mph", ""]


def test_numbers_are_split_from_their_units():
    texts = [r"35\text{ cm}", r"\$18.00", r"28\%"]
    assert [quantity(text) for text in texts] == [("35", "cm"), ("18.00", "$"), ("28", "%")]


def test_a_time_without_a_half_of_the_day_takes_that_of_the_other():
    assert same_time(clock("6:30"), clock("6:30 p.m.")) and not same_time(clock("9:00 PM"), clock("9:00 AM"))
