from stapo_trl.rewards.verifier.sampled_values import same_by_value


def test_a_few_values_decide_where_functions_are_not_involved():
    assert same_by_value("x^{2}+2x+1", "(x+1)^{2}") is True
    assert same_by_value(r"2\sqrt{3}", r"3\sqrt{2}") is False
    assert same_by_value("f(x)", "xf") is None
