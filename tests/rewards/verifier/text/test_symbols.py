from stapo_trl.rewards.verifier.text.symbols import from_unicode


def test_unicode_becomes_latex():
    assert from_unicode("2√3 ≤ ½π²") == r"2\sqrt 3 \le \frac{1}{2}\pi ^{2}"
