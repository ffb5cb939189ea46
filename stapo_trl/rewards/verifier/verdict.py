"""Grades responses against gold answers: one verdict each, in bounded time."""

import re
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal

from ..completion import completion_text
from .answer import final_answer, gold_answer
from .comparison import Comparison, canonical
from .exact import MAX_DEPTH, TooLarge, refuse_giants
from .workers.pool import WorkerPool


VerdictKind = Literal["correct", "incorrect", "no_answer", "unparseable_gold", "timeout", "error"]
# A longer answer is right only if it equals the gold letter by letter
MAX_LENGTH = 2000
MAX_NESTING = 250
COMMA = re.compile(r",\s+")
SELF_TEST = [
    (r"\boxed{0.5}", r"\frac{1}{2}", True),
    (r"\boxed{\frac{1}{3}}", r"\frac{1}{2}", False),
    (r"\boxed{2\sin x\cos x}", r"\sin 2x", True),
    (r"\boxed{2\sin x}", r"\sin 2x", False),
    (r"\boxed{\frac{\sqrt{2}}{2}}", r"\frac{1}{\sqrt{2}}", True),
    (r"\boxed{(-1,1)}", r"|x| < 1", True),
    (r"\boxed{[-1,1]}", r"|x| < 1", False),
]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of one response.

    Attributes:
        kind (`str`): "correct", "incorrect", "no_answer" (nothing that counts as a final answer), "unparseable_gold"
            (the gold cannot be graded), "timeout" or "error" (the worker was killed or died; neither right nor wrong
            is known).
        answer (`str` or `None`): The extracted answer as the response wrote it.
    """

    kind: VerdictKind
    answer: str | None = None

    @property
    def correct(self) -> bool:
        return self.kind == "correct"


class Verifier:
    r"""Grades responses, by arithmetic on text where that decides and in killable processes where it takes sympy.

    Args:
        require_box (`bool`, *optional*, defaults to `False`): Whether only an answer in a box counts.
        tolerance (`float`, *optional*, defaults to `0.0`): Relative error that a plain number may have, in [0, 1).
        item_seconds (`float`, *optional*, defaults to `5.0`): Wall-clock limit of one symbolic comparison.
        batch_seconds (`float`, *optional*, defaults to `30.0`): Wall-clock limit of one call of `grade`. Keep it far
            below the timeout of the collectives.
        workers (`int`, *optional*): Worker processes of this rank; by default the cores of the host shared among its
            ranks, 4 at most.
        memory_gb (`float`, *optional*, defaults to `2.0`): Address space of one worker in GiB.
        cache_size (`int`, *optional*, defaults to `16384`): Verdicts remembered by (answer, gold).

    Raises:
        `ValueError`: For a limit that is not positive, or a tolerance out of range.
        `RuntimeError`: If a few known pairs are graded wrongly (a broken sympy or antlr).

    Example:
    ```python
    >>> verifier = Verifier()
    >>> [verdict.kind for verdict in verifier.grade([r"\boxed{0.5}", "I give up."], [r"\frac12", "7"])]
    ['correct', 'no_answer']
    ```
    """

    def __init__(
        self,
        require_box: bool = False,
        tolerance: float = 0.0,
        item_seconds: float = 5.0,
        batch_seconds: float = 30.0,
        workers: int | None = None,
        memory_gb: float = 2.0,
        cache_size: int = 16384,
    ):
        limits = {"item_seconds": item_seconds, "batch_seconds": batch_seconds, "memory_gb": memory_gb}
        for name, value in limits.items():
            if not value > 0:
                raise ValueError(f"`{name}` must be positive, got {value}.")
        if not 0 <= tolerance < 1:
            raise ValueError(f"`tolerance` is a relative error in [0, 1), got {tolerance}.")
        self.require_box = require_box
        self.tolerance = tolerance
        self.batch_seconds = batch_seconds
        self.cache_size = cache_size
        self.pool = WorkerPool(workers, item_seconds, memory_gb)
        self._comparison = Comparison(tolerance=tolerance)
        self.forget()
        self.self_test()

    def forget(self) -> None:
        """Empty the cache."""
        self._cache: OrderedDict[tuple[str, str], VerdictKind] = OrderedDict()
        self._cache_lock = threading.Lock()

    def __getstate__(self) -> dict:
        return {name: value for name, value in self.__dict__.items() if not name.startswith("_cache")}

    def __setstate__(self, state: dict) -> None:
        self.__dict__.update(state)
        self.forget()

    def self_test(self) -> None:
        """Grade a few known pairs; `RuntimeError` if one does not come out right."""
        responses, golds, expected = zip(*SELF_TEST, strict=True)
        verdicts = self.grade(responses, golds)
        for verdict, gold, right in zip(verdicts, golds, expected, strict=True):
            if verdict.kind != ("correct" if right else "incorrect"):
                raise RuntimeError(
                    f"The maths verifier grades {verdict.answer!r} against {gold!r} as {verdict.kind!r}; its sympy, "
                    "antlr4-python3-runtime (4.9.3, 4.11 or 4.13.2) or math-verify is broken: reinstall them."
                )

    def grade(self, responses: Sequence[str], golds: Sequence[object]) -> list[Verdict]:
        """One verdict per response.

        Args:
            responses (`Sequence[str]` or `Sequence[list[dict]]`): Plain or chat completions, without their prompts.
            golds (`Sequence[object]`): Gold answers, one per response: text as stored, ints or floats.

        Returns:
            `list[Verdict]`: In the order of the responses.

        Raises:
            `ValueError`: If there is not one gold per response, or a response is no completion.
        """
        if len(responses) != len(golds):
            raise ValueError(f"Got {len(responses)} responses and {len(golds)} golds: pass one gold per response.")
        deadline = time.monotonic() + self.batch_seconds
        verdicts: list[Verdict | None] = []
        open_pairs: dict[tuple[str, str], list[int]] = {}
        for index, (response, gold) in enumerate(zip(map(completion_text, responses), golds, strict=True)):
            verdict, pair = self._quick(response, gold)
            if pair is not None:
                open_pairs.setdefault(pair, []).append(index)
            verdicts.append(verdict)
        if open_pairs:
            jobs = [(*pair, self.tolerance) for pair in open_pairs]
            for (pair, indices), kind in zip(
                open_pairs.items(), self.pool.run(jobs, deadline - time.monotonic()), strict=True
            ):
                if kind is not None:  # not remembered where the budget ended before the job was tried
                    self._remember(pair, kind)
                for index in indices:
                    verdicts[index] = Verdict(kind or "timeout", verdicts[index].answer)
        return verdicts

    def _quick(self, response: str, gold: object) -> tuple[Verdict, tuple[str, str] | None]:
        """The verdict, and the (answer, gold) pair if it takes a worker to tell."""
        answer = None
        try:
            gold_text = gold_answer(gold)
            if gold_text is None:
                return Verdict("unparseable_gold"), None
            answer = final_answer(response, self.require_box)
            if answer is None:
                return Verdict("no_answer"), None
            if answer == gold_text or COMMA.sub(",", answer) == COMMA.sub(",", gold_text):
                return Verdict("correct", answer), None
            if len(answer) > MAX_LENGTH or _nesting(answer) > MAX_NESTING:
                return Verdict("incorrect", answer), None
            pair = canonical(answer), canonical(gold_text)
            with self._cache_lock:
                known = self._cache.get(pair)
                if known:
                    self._cache.move_to_end(pair)
            if known:
                return Verdict(known, answer), None
            same = self._comparison.same(*pair)
            if same is None:
                refuse_giants(pair[0])
                if _nesting(pair[0]) > MAX_DEPTH:
                    raise TooLarge
        except TooLarge:
            return Verdict("incorrect", answer), None
        except Exception:  # an error on hostile text is a verdict, never the end of a run
            return Verdict("error", answer), None
        if same is None:
            return Verdict("timeout", answer), pair
        kind = "correct" if same else "incorrect"
        self._remember(pair, kind)
        return Verdict(kind, answer), None

    def _remember(self, pair: tuple[str, str], kind: VerdictKind) -> None:
        with self._cache_lock:
            self._cache[pair] = kind
            if len(self._cache) > self.cache_size:
                self._cache.popitem(last=False)


def _nesting(text: str) -> int:
    depth = deepest = 0
    for char in text:
        if char in "([{":
            depth += 1
            deepest = max(deepest, depth)
        elif char in ")]}":
            depth -= 1
    return deepest


@cache
def default_verifier() -> Verifier:
    return Verifier()


def grade(responses: Sequence[str], golds: Sequence[object]) -> list[Verdict]:
    r"""Grade responses against gold answers with the default options; see [`Verifier`] for others.

    Args:
        responses (`Sequence[str]` or `Sequence[list[dict]]`): Plain or chat completions, without their prompts.
        golds (`Sequence[object]`): Gold answers as stored, one per response.

    Returns:
        `list[Verdict]`

    Raises:
        `ValueError`: If there is not one gold per response, or a response is no completion.

    Example:
    ```python
    >>> [verdict.kind for verdict in grade([r"So \boxed{2}.", r"So \boxed{3}."], ["2", "2"])]
    ['correct', 'incorrect']
    ```
    """
    return default_verifier().grade(responses, golds)


def shares(verdicts: Sequence[Verdict]) -> dict[str, float]:
    """The share of each kind of verdict, in [0, 1]; empty if there are no verdicts."""
    counts = Counter(verdict.kind for verdict in verdicts)
    return {kind: counts[kind] / len(verdicts) for kind in VerdictKind.__args__} if verdicts else {}
