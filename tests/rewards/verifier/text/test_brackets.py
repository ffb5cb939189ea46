from stapo_trl.rewards.verifier.text.brackets import braced, related, split


def test_braced_ends_at_the_brace_that_closes_the_group():
    assert braced(r"\boxed{\frac{1}{2}}!", 6) == (r"\frac{1}{2}", 19)
    assert braced(r"\boxed{\frac{1}{2}", 6) is None


def test_separators_and_relations_inside_brackets_do_not_count():
    assert split(r"(1,2),\{3,4\},5", ",") == ["(1,2)", r"\{3,4\}", "5"]
    assert related(r"x\le 3") and not related(r"\sum_{k=1}^{9}k")
