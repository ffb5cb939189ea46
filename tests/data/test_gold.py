"""Every way in which data sets store an answer gives its text, or a reason."""

from decimal import Decimal

import numpy as np
import pytest

from stapo_trl.data.gold import gold_text
from stapo_trl.rewards import grade


def test_the_answer_is_read():
    cases = [
        ("025", "025"),  # leading zeros are text
        (27.0, "27"),
        (-1.0, "-1"),
        (0.5, "0.5"),
        (np.float64(27.0), "27"),
        (np.int64(70), "70"),
        (2**53 + 1, "9007199254740993"),
        (2.0**53 - 1, "9007199254740991"),
        (Decimal("1.50"), "1.50"),
        (" 7 \n", "7"),
        ("48/2 = <<48/2=24>>24 clips.\n#### 2,125", "2125"),
        ("#### -1,450,000", "-1450000"),
        ("#### $18", "$18"),
        ("10,\\!080", "10,\\!080"),  # commas are only thousands behind ####
        ("1,234", "1,234"),
        (r"We get $\boxed{1}$, no, $\boxed{\frac{1}{\sqrt{2}}}$.", r"\frac{1}{\sqrt{2}}"),
        (r"So \boxed 5.", "5"),
        (r"So $\fbox{025}$", "025"),
        (r"So $\framebox{025}$", "025"),
        (["$2n-2$"], "2n-2"),
        (["2", "5"], "2, 5"),
        ("['70']", "70"),
        (r'["\\frac{1}{2}"]', r"\frac{1}{2}"),
        ("[1, 2]", "[1, 2]"),  # an interval
        ("$2$,$5$", "$2$,$5$"),
        (r"\$36", r"\$36"),
        (r"336^\circ", r"336^\circ"),
        ("4.5e33", "4.5e33"),
    ]
    answers = [answer for _, answer in cases]
    assert [gold_text(stored) for stored, _ in cases] == answers
    verdicts = grade([f"\\boxed{{{answer}}}" for answer in answers], answers)
    assert not [answer for answer, verdict in zip(answers, verdicts, strict=True) if not verdict.correct]


def test_what_cannot_be_graded_is_refused_with_its_reason():
    cases = [
        (None, "there is no gold"),
        ("", "there is no gold"),
        (" \n\t", "there is no gold"),
        ([], "there is no gold"),
        ([None], "there is no gold"),
        (["5", ""], "there is no gold"),
        (float("nan"), "there is no gold"),
        (np.nan, "there is no gold"),
        (float("inf"), "too large"),
        (2.0**53, "too large to hold every digit"),
        (True, "neither text nor a number"),
        ({"value": 5}, "neither text nor a number"),
        ("None", "no answer can be read from the gold 'None'"),
        (r"\frac{1}{", "no answer can be read"),
        (r"\boxed{}", "no answer can be read"),
        ("#### ", "no answer can be read"),
        ("We leave the proof of this fact to the reader, who will enjoy finding it.", "no answer can be read"),
    ]
    for stored, reason in cases:
        with pytest.raises(ValueError, match=reason):
            gold_text(stored)


def test_text_that_looks_like_a_list_is_never_evaluated():
    hostile = "['a', __import__('os').abort()]"
    assert gold_text(hostile) == hostile
    assert gold_text("[" * 1500 + "'1'" + "]" * 1500).startswith("[[[")
