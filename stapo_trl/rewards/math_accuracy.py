"""The accuracy reward: is the final answer the gold answer?"""

import time
from collections.abc import Callable
from functools import cache
from typing import Literal

from .completion import completion_text, read_responses
from .verifier.answer import gold_answer, last_box
from .verifier.text.thinking import strip_thinking
from .verifier.verdict import Verdict, Verifier, shares


COLUMNS = ("solution", "answer", "ground_truth")
# Characters at the end of a response that JustRL's rule (DAPO's strict scorer) looks at
STRICT_WINDOW = 100


class MathAccuracyReward:
    r"""Pays `correct` for a final answer that equals the gold answer, `wrong` otherwise, `None` for an unusable gold.

    The final answer is the last box after any thinking part or, without a box, an explicit form such as `Answer: 5`
    (see [`final_answer`]). A response to a prompt that ends with an open `<think>` begins inside a thought. Otherwise
    prompts are read only to show the judge the question.

    Args:
        correct (`float`, *optional*, defaults to `1.0`): Reward of a right answer (DAPO).
        wrong (`float`, *optional*, defaults to `-1.0`): Reward of a wrong or missing answer (DAPO).
        failed (`float`, `None` or `"wrong"`, *optional*, defaults to `"wrong"`): Reward where the comparison timed out
            or failed; `None` abstains.
        require_box (`bool`, *optional*, defaults to `False`): Whether only an answer in a box counts.
        strict (`bool`, *optional*, defaults to `False`): JustRL's rule instead: the last box in the last 100 characters,
            behind any thinking part, must equal the gold letter by letter.
        answer_column (`str`, *optional*): Column with the gold answers; by default the first of `solution`, `answer`
            and `ground_truth` that exists.
        judge (`Callable`, *optional*): Reviews what the rules reject: called with questions, golds and responses, it
            returns one letter each, "A" for right (see [`LLMJudge`]).
        name (`str`, *optional*): `__name__` and prefix of the logged metrics.
        **verifier: Options of [`Verifier`]: tolerance, item_seconds, batch_seconds, workers, memory_gb, cache_size.

    Raises:
        `ValueError`: If `correct` does not exceed `wrong`, `failed` is no reward, or `strict` comes with options of
            the verifier.
        `RuntimeError`: If the verifier fails its self-test.

    Example:
    ```python
    >>> reward = MathAccuracyReward(correct=1.0, wrong=0.0)
    >>> reward([r"So \boxed{\frac12}.", "No idea."], solution=["0.5", "0.5"])
    [1.0, 0.0]
    ```
    """

    def __init__(
        self,
        correct: float = 1.0,
        wrong: float = -1.0,
        failed: float | None | Literal["wrong"] = "wrong",
        require_box: bool = False,
        strict: bool = False,
        answer_column: str | None = None,
        judge: Callable | None = None,
        name: str | None = None,
        **verifier,
    ):
        if not correct > wrong:
            raise ValueError(f"`correct` ({correct}) must exceed `wrong` ({wrong}): a right answer has to pay more.")
        if failed not in (None, "wrong") and not isinstance(failed, int | float):
            raise ValueError(f"`failed` is a reward, None to abstain, or 'wrong', got {failed!r}.")
        if strict and verifier:
            raise ValueError(f"`strict` compares text only; remove {', '.join(sorted(verifier))}.")
        self.__name__ = name or ("strict_math_accuracy_reward" if strict else "math_accuracy_reward")
        self.correct, self.wrong = correct, wrong
        self.failed = wrong if failed == "wrong" else failed
        self.answer_columns = (answer_column,) if answer_column else COLUMNS  # the data need one of them
        self.judge = judge
        self.verifier = None if strict else Verifier(require_box=require_box, **verifier)

    def __call__(
        self,
        completions: list,
        solution: list | None = None,
        log_extra: Callable[[str, list], None] | None = None,
        log_metric: Callable[[str, float], None] | None = None,
        **columns,
    ) -> list[float | None]:
        """One reward per completion.

        Args:
            completions (`list[str]` or `list[list[dict]]`): Plain or chat completions.
            solution (`list`, *optional*): Gold answers, if their column has this name.
            log_extra (`Callable`, *optional*): TRL's; receives the columns `<name>/verdict` and `<name>/answer`.
            log_metric (`Callable`, *optional*): TRL's; receives the share of each kind of verdict and the seconds spent.
            **columns: The other columns, among them the gold answers if named otherwise, and TRL's `prompts` and
                `completion_ids`.

        Returns:
            `list[float | None]`: `None` where the gold cannot be graded.

        Raises:
            `ValueError`: If no column holds the gold answers.
        """
        begin = time.perf_counter()
        golds = self._find_golds(columns | ({} if solution is None else {"solution": solution}))
        texts = read_responses(completions, log_extra=log_extra, **columns)
        verdicts = self.verifier.grade(texts, golds) if self.verifier else _match_exactly(texts, golds)
        accepted = self._ask_judge(verdicts, texts, golds, columns.get("prompts")) if self.judge else set()
        kinds = [verdict.kind for verdict in verdicts]
        for index in accepted:
            kinds[index] = "correct"
        if log_extra:
            log_extra(
                f"{self.__name__}/verdict", [f"{k} (judge)" if i in accepted else k for i, k in enumerate(kinds)]
            )
            log_extra(f"{self.__name__}/answer", [verdict.answer or "" for verdict in verdicts])
        if log_metric:
            for kind, share in shares([Verdict(kind) for kind in kinds]).items():
                log_metric(f"{self.__name__}/{kind}", share)
            if self.judge and kinds:
                log_metric(f"{self.__name__}/judge_accepted", len(accepted) / len(kinds))
            log_metric(f"{self.__name__}/seconds", time.perf_counter() - begin)
        rewards = {"correct": self.correct, "unparseable_gold": None, "timeout": self.failed, "error": self.failed}
        return [rewards.get(kind, self.wrong) for kind in kinds]

    def _find_golds(self, columns: dict) -> list:
        for name in self.answer_columns:
            if columns.get(name) is not None:
                return columns[name]
        wanted = " or ".join(f"`{name}`" for name in self.answer_columns)
        seen = ", ".join(sorted(columns.keys() - {"prompts", "completion_ids", "trainer_state"})) or "none"
        raise ValueError(
            f"{self.__name__} needs the gold answers in a dataset column named {wanted}, but the columns are: {seen}. "
            "Rename the column, or pass `answer_column=` to MathAccuracyReward."
        )

    def _ask_judge(self, verdicts: list[Verdict], texts: list[str], golds: list, prompts: list | None) -> set[int]:
        """Indices of the rejected responses that the judge accepts."""
        if prompts is None:
            raise ValueError("The judge needs the questions: call the reward with `prompts`, as TRL does.")
        rejected = [
            index
            for index, verdict in enumerate(verdicts)
            if verdict.kind not in ("correct", "unparseable_gold") and (strip_thinking(texts[index]) or "").strip()
        ]
        if not rejected:
            return set()
        letters = self.judge(
            [question_text(prompts[index]) for index in rejected],
            [gold_answer(golds[index]) for index in rejected],
            [texts[index] for index in rejected],
        )
        return {index for index, letter in zip(rejected, letters, strict=True) if letter == "A"}


def question_text(prompt: str | list[dict]) -> str:
    """The question in a prompt: the text itself, or the last user message of a chat."""
    if isinstance(prompt, str):
        return prompt
    asked = [message for message in prompt if message.get("role") == "user"] or prompt
    return completion_text([{"content": asked[-1].get("content")}]) if asked else ""


def _match_exactly(texts: list[str], golds: list) -> list[Verdict]:
    if len(texts) != len(golds):
        raise ValueError(f"Got {len(texts)} completions and {len(golds)} golds: pass one gold per completion.")
    verdicts = []
    for text, gold in zip(texts, map(gold_answer, golds), strict=True):
        answer = last_box((strip_thinking(text) or "")[-STRICT_WINDOW:])
        if gold is None:
            verdicts.append(Verdict("unparseable_gold"))
        elif not answer:
            verdicts.append(Verdict("no_answer"))
        else:
            verdicts.append(Verdict("correct" if answer == gold else "incorrect", answer))
    return verdicts


@cache
def _default(strict: bool) -> MathAccuracyReward:
    return MathAccuracyReward(strict=strict)


def math_accuracy_reward(completions: list, solution: list | None = None, **kwargs) -> list[float | None]:
    r"""[`MathAccuracyReward`] with its defaults: +1 for the right final answer, -1 otherwise, `None` for a bad gold.

    Args:
        completions (`list[str]` or `list[list[dict]]`): Plain or chat completions.
        solution (`list`, *optional*): Gold answers; or a column `answer` or `ground_truth`.
        **kwargs: TRL's other arguments and the dataset's columns.

    Returns:
        `list[float | None]`: One reward per completion.

    Raises:
        `ValueError`: If no column holds the gold answers.
        `RuntimeError`: If the verifier fails its self-test, on the first call.

    Example:
    ```python
    >>> math_accuracy_reward([r"So \boxed{\frac12}.", r"So \boxed{2}."], solution=["0.5", "0.5"])
    [1.0, -1.0]
    ```
    """
    return _default(False)(completions, solution, **kwargs)


def strict_math_accuracy_reward(completions: list, solution: list | None = None, **kwargs) -> list[float | None]:
    r"""`MathAccuracyReward(strict=True)`, JustRL's rule: the last box in the last 100 characters is the gold, exactly.

    Args:
        completions (`list[str]` or `list[list[dict]]`): Plain or chat completions.
        solution (`list`, *optional*): Gold answers; or a column `answer` or `ground_truth`.
        **kwargs: TRL's other arguments and the dataset's columns.

    Returns:
        `list[float | None]`: One reward per completion.

    Example:
    ```python
    >>> strict_math_accuracy_reward([r"So \boxed{0.5}.", r"So \boxed{\frac12}."], solution=["0.5", "0.5"])
    [1.0, -1.0]
    ```
    """
    return _default(True)(completions, solution, **kwargs)


# Read by the checks before training
math_accuracy_reward.answer_columns = strict_math_accuracy_reward.answer_columns = COLUMNS
