"""Verdicts on samples: the rules first, then a judge, if there is one, on what they rejected."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from ..rewards import grade
from ..rewards.math_accuracy import question_text
from ..rewards.verifier.answer import gold_answer
from .samples import Problem, Sample


AT_ONCE = 64  # the verifier's time limit is for a call


def grade_samples(samples: Sequence[Sample], problems: dict[tuple[str, str], Problem]) -> list[Sample]:
    """
    Samples with the verdict of the rules.

    Args:
        samples (`Sequence[Sample]`):
            Samples, with or without a verdict.
        problems (`dict[tuple[str, str], Problem]`):
            Problems by benchmark and `problem_id`.

    Returns:
        `list[Sample]`: in the same order.
    """
    graded = []
    for start in range(0, len(samples), AT_ONCE):
        part = samples[start : start + AT_ONCE]
        golds = [problems[sample.benchmark, sample.problem_id].solution for sample in part]
        verdicts = grade([sample.text for sample in part], golds)
        graded += [
            replace(sample, verdict=verdict.kind, answer=verdict.answer, judged=False)
            for sample, verdict in zip(part, verdicts, strict=True)
        ]
    return graded


def judge_samples(
    samples: Sequence[Sample], problems: dict[tuple[str, str], Problem], judge: Callable
) -> list[Sample]:
    """
    The same samples; those that the rules rejected and the judge accepts are correct.

    Args:
        samples (`Sequence[Sample]`):
            Graded samples.
        problems (`dict[tuple[str, str], Problem]`):
            Problems by benchmark and `problem_id`.
        judge (`Callable`):
            Called with questions, golds and responses; one letter each, "A" for right (see
            [`~stapo_trl.rewards.LLMJudge`]).

    Returns:
        `list[Sample]`: in the same order.
    """
    samples = list(samples)
    rejected = [
        place
        for place, sample in enumerate(samples)
        if sample.verdict not in ("correct", "unparseable_gold") and sample.text.strip()
    ]
    asked = [problems[samples[place].benchmark, samples[place].problem_id] for place in rejected]
    letters = judge(
        [question_text(problem.prompt) for problem in asked],
        [gold_answer(problem.solution) for problem in asked],
        [samples[place].text for place in rejected],
    )
    for place, letter in zip(rejected, letters, strict=True):
        if letter == "A":
            samples[place] = replace(samples[place], verdict="correct", judged=True)
    return samples
