import json
import pickle
import random
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stapo_trl.rewards.verifier import verdict as module
from stapo_trl.rewards.verifier.verdict import Verdict, Verifier, shares


pytestmark = pytest.mark.usefixtures("shared_workers")
PAIRS = [json.loads(line) for line in (Path(__file__).parent / "verifier_pairs.jsonl").open(encoding="utf-8")]
# What a final answer may look like around its text.
FORMS = {
    "box": r"So $\boxed{%s}$.",
    "box after thoughts": "<think>\\boxed{77}?</think>\n\nSo \\boxed{%s}",
    "answer line": "Some work.\nAnswer: %s",
    "bold answer line": "**Answer:** %s",
    "hashes": "Some work.\n#### %s",
    "bold": "Final Answer: **%s**",
    "chinese": "所以答案是%s。",
    "tag": "<answer>%s</answer>",
    "display": "The final answer is:\n\\[ %s \\]",
    "heading": "### Final Answer\n\n$%s$\n",
}


def test_every_pair_gets_its_right_verdict(verifier):
    verdicts = verifier.grade([pair["response"] for pair in PAIRS], [pair["gold"] for pair in PAIRS])
    failures = [
        (pair, verdict)
        for pair, verdict in zip(PAIRS, verdicts, strict=True)
        if verdict.correct != pair["correct"] or verdict.kind in ("timeout", "error")
    ]
    assert not failures and len(PAIRS) == 1618


def test_a_gold_in_the_place_of_the_answer_is_not_the_same(verifier):
    # math-verify's comparison is not symmetric, ours asks the gold what is wanted
    assert verifier.grade([r"\boxed{28}", r"\boxed{28\%}"], [r"28\%", "0.28"])[0].correct
    assert not verifier.grade([r"\boxed{4200\%}"], ["42"])[0].correct
    assert not verifier.grade([r"\boxed{0}"], ["3x+4y=0"])[0].correct


def test_unusable_gold_is_never_paid(verifier):
    golds = ["", "  ", "\\sqrt{", "\\frac{1}{", "x=", None, True, float("nan"), [], ["1", "2"], "?"]
    for responses in ([rf"\boxed{{{gold}}}" for gold in golds], [r"\boxed{5}"] * len(golds)):
        assert [v.kind for v in verifier.grade(responses, golds)] == ["unparseable_gold"] * len(golds)


def test_gold_is_read_however_it_is_stored(verifier):
    golds = [33, 33.0, "33", "033", ["33"], "\\boxed{33}", "$33$", "22 + 11 = 33\n#### 33"]
    for answer, kind in ((33, "correct"), (34, "incorrect")):
        assert [v.kind for v in verifier.grade([rf"\boxed{{{answer}}}"] * len(golds), golds)] == [kind] * len(golds)


def test_float_noise_in_a_gold_is_no_answer(verifier):
    assert verifier.grade([r"\boxed{0.3}"], [0.1 + 0.2])[0].correct
    assert verifier.grade([r"\boxed{\frac13}"], [1 / 3])[0].correct


def test_tolerance_is_relative_and_off_by_default(verifier):
    tolerant = Verifier(tolerance=0.01)
    responses, golds = [r"\boxed{2.72\times10^{-19}}", r"\boxed{2.8\times10^{-19}}"], ["2.7e-19"] * 2
    assert [v.correct for v in tolerant.grade(responses, golds)] == [True, False]
    assert [v.correct for v in verifier.grade(responses, golds)] == [False, False]


def test_verdict_carries_the_answer_as_written(verifier):
    assert verifier.grade([r"It is \boxed{ \dfrac{2}{4} }."], ["0.5"]) == [Verdict("correct", r"\dfrac{2}{4}")]


def test_counts_must_agree(verifier):
    with pytest.raises(ValueError, match="2 responses and 1 golds"):
        verifier.grade(["a", "b"], ["5"])


def test_limits_are_refused_early():
    for name, value in (("item_seconds", 0), ("batch_seconds", -1), ("memory_gb", 0), ("tolerance", 1.5)):
        with pytest.raises(ValueError, match=name):
            Verifier(**{name: value})


def test_broken_sympy_fails_at_construction(monkeypatch):
    monkeypatch.setattr(module, "SELF_TEST", [(r"\boxed{\sin x}", r"\cos x", True)])
    with pytest.raises(RuntimeError, match="sympy"):
        Verifier()


def test_the_same_pair_is_verified_once(verifier, monkeypatch):
    calls = []
    monkeypatch.setattr(verifier.pool, "run", lambda jobs, seconds: calls.append(jobs) or ["correct"] * len(jobs))
    for _ in range(2):
        assert all(v.correct for v in verifier.grade([r"\boxed{\sin^2 7t}"] * 8, [r"1-\cos^2 7t"] * 8))
    assert len(calls) == 1 and len(calls[0]) == 1


def test_cache_is_bounded_and_survives_pickling(verifier):
    small = pickle.loads(pickle.dumps(verifier))
    small.cache_size = 4
    small.grade([rf"\boxed{{{n}}}" for n in range(20)], ["7"] * 20)
    assert len(small._cache) == 4


def test_shares_are_of_all_verdicts():
    assert shares([]) == {}
    found = shares([Verdict("correct"), Verdict("no_answer")] * 2)
    assert found.pop("correct") == found.pop("no_answer") == 0.5 and set(found.values()) == {0}


def notations(value: int) -> list[str]:
    """One whole number of five to seven digits in every notation that the README names."""
    text, grouped = str(value), f"{value:,}"
    sign, digits = ("-", text[1:]) if value < 0 else ("", text)
    wide = text.translate(str.maketrans("0123456789", "０１２３４５６７８９"))
    return [text, grouped, grouped.replace(",", " "), grouped.replace(",", "\u2009"), grouped.replace(",", "{,}"),
            grouped.replace(",", r",\!"), grouped.replace(",", r"\,"), wide, f"{text}.0", f"{text}.", f"0{text}" if not sign else text,
            rf"\frac{{{2 * value}}}{{2}}", f"{2 * value}/2", rf"\text{{{text}}}", rf"\textbf{{{text}}}", rf"\underline{{{text}}}",
            f"{sign}{digits[0]}.{digits[1:]}e{len(digits) - 1}", rf"{sign}{digits[0]}.{digits[1:]}\times 10^{{{len(digits) - 1}}}",
            f"{sign}{digits[0]}.{digits[1:]}*10^{len(digits) - 1}", rf"{text}\text{{ cm}}", f"x={text}", rf"\${text}", f"(({text}))",
            text.replace("-", "−"), rf"{text}^\circ", f"**{text}**"]  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(value=st.integers(10_000, 9_999_999) | st.integers(-9_999_999, -10_000), data=st.data())
def test_number_equals_itself_in_every_notation_and_no_other(value, data, verifier):
    place = data.draw(st.integers(0, len(str(abs(value))) - 1))
    changed = value + 10**place * (1 if value > 0 else -1)
    right = verifier.grade([rf"\boxed{{{text}}}" for text in notations(value)], [str(value)] * len(notations(value)))
    wrong = verifier.grade(
        [rf"\boxed{{{text}}}" for text in notations(changed)], [str(value)] * len(notations(changed))
    )
    assert [v.kind for v in right] == ["correct"] * len(right)
    assert [v.kind for v in wrong] == ["incorrect"] * len(wrong)


ALPHABET = (
    r"\frac \sqrt \boxed{ \left( \right) \begin{pmatrix} \end{pmatrix} \text{ \pm \infty \cup \in \le \sum_ \int ^ _ { } "
    r"( ) [ ] | $ , . ; : ! = < > + - * / % & \\ 0 1 2 5 99 x y e i pi ½ √ ° ∞ ５ and or 答案是 <think> </think> \x00 \ud800"
).split(" ")


def test_fuzzed_responses_neither_raise_nor_stall(verifier):
    draw = random.Random(7)
    responses = [
        "".join(draw.choices([*ALPHABET, " ", "\n", "\ud800", "\0"], k=draw.randint(1, 40))) for _ in range(10_000)
    ]
    responses = [rf"\boxed{{{text}}}" if index % 2 else text for index, text in enumerate(responses)]
    golds = [draw.choice(["5", r"\frac{1}{2}", "(1,2)", "x^2+1", r"\{1,2\}"]) for _ in responses]
    counts = Counter()
    for start in range(0, len(responses), 1000):
        counts.update(v.kind for v in verifier.grade(responses[start : start + 1000], golds[start : start + 1000]))
    assert sum(counts.values()) == 10_000
    assert counts["timeout"] == 0


def test_every_benchmark_gold_grades_as_correct_against_itself(verifier, shared):
    parquet = pytest.importorskip("pyarrow.parquet")
    golds = [
        row["reward_model"]["ground_truth"]
        for path in sorted((shared / "data/benchmarks").glob("*.parquet"))
        for row in parquet.read_table(path).to_pylist()
    ]
    assert len(golds) == 1546
    for name, form in FORMS.items():
        texts = [
            gold.removeprefix(r"\boxed{").removesuffix("}") if gold.startswith(r"\boxed{") else gold for gold in golds
        ]
        if "$" in form or r"\[" in form:
            texts = [text.replace(r"\$", "\0").replace("$", "").replace("\0", r"\$") for text in texts]
        wrong = [
            g for g, v in zip(golds, verifier.grade([form % t for t in texts], golds), strict=True) if not v.correct
        ]
        assert not wrong, (name, wrong)


def test_golds_of_other_problems_are_wrong_answers(verifier, shared):
    parquet = pytest.importorskip("pyarrow.parquet")
    draw = random.Random(3)
    for path in sorted((shared / "data/benchmarks").glob("*.parquet")):
        golds = sorted({row["reward_model"]["ground_truth"] for row in parquet.read_table(path).to_pylist()})
        pairs = [draw.sample(golds, 2) for _ in range(60)]
        verdicts = verifier.grade([rf"\boxed{{{answer}}}" for answer, _ in pairs], [gold for _, gold in pairs])
        accepted = [pair for pair, v in zip(pairs, verdicts, strict=True) if v.correct]
        assert not [pair for pair in accepted if pair[0].strip("$") != pair[1].strip("$")]


def test_real_completions_agree_with_the_published_rule_verdict(verifier, shared):
    rows = [json.loads(line) for line in (shared / "data/completions/math_cot_800.jsonl").open()]
    verdicts = verifier.grade([row["completion"] for row in rows], [row["gold"] for row in rows])
    differing = [row for row, v in zip(rows, verdicts, strict=True) if v.correct != row["rule_score"]]
    # The one that differs answers 10000 to a gold 10{,}000, which the published rule refused.
    assert [row["gold"] for row in differing] == ["10{,}000"]
