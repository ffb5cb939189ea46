"""The reward for reasoning-gym: full marks from the task's own scorer, which runs in a process that can be killed."""

import json
import re
from functools import cache

from .completion import read_responses
from .verifier.answer import final_answer
from .verifier.workers.pool import WorkerPool


BATCH_SECONDS = 30.0
MAX_LENGTH = 10_000  # characters of an answer
# Several scorers evaluate the answer as Python, where only a call can do harm. So an answer may call nothing but a few
# functions of mathematics, and beside such a call nothing may rebind their names or hand text to sympy as code.
CALL = re.compile(r"[^\W\d]\w*\(|[)\]}'\"#]\(")
FUNCTIONS = {f"{name}(" for name in ("sin", "cos", "tan", "asin", "acos", "atan", "exp", "log", "ln", "sqrt", "Abs")}
BESIDE_CALLS = re.compile(r"['\"]|:=|for|lambda")
TEXT = re.compile(r"\\(?:text|mathrm)\{([^{}]*)\}")


def reasoning_gym_reward(completions: list, entry: list[str | None], **kwargs) -> list[float | None]:
    r"""1.0 if the task's scorer gives the final answer full marks, else -1.0; partial credit is not paid.

    Args:
        completions (`list[str]` or `list[list[dict]]`): Plain or chat completions; see [`final_answer`] for how the
            answer is read.
        entry (`list[str | None]`): Column of [`load_reasoning_gym`], the entries as JSON; `None` for rows of another
            set.
        **kwargs: TRL's other arguments, of which `prompts` and `log_extra` tell whether the prompt opened a thought.

    Returns:
        `list[float | None]`: One value per completion, `None` without an entry. An answer is wrong if it would call a
        function or takes longer than 5 s to score.

    Raises:
        `ValueError`: If there is not one entry per completion, as text.

    Example:
    ```python
    row = load_reasoning_gym("chain_sum", size=1)[0]
    reasoning_gym_reward([rf"\boxed{{{row['solution']}}}", "No idea."], entry=[row["entry"]] * 2)  # [1.0, -1.0]
    ```
    """
    if len(entry) != len(completions) or not all(isinstance(text, str | None) for text in entry):
        raise ValueError(
            f"`entry` is the column of JSON texts that load_reasoning_gym writes, got {len(entry)} for "
            f"{len(completions)} completions: {str(entry)[:80]}."
        )
    answers = list(map(read_answer, read_responses(completions, **kwargs)))
    marks = have_full_marks(answers, [text or "" for text in entry], BATCH_SECONDS)
    return [None if text is None else 1.0 if right else -1.0 for text, right in zip(entry, marks, strict=True)]


def read_answer(response: str) -> str | None:
    r"""The final answer in a response, without a `\text{}` around it."""
    answer = final_answer(response)
    wrapped = TEXT.fullmatch(answer or "")
    return wrapped[1] if wrapped else answer


def have_full_marks(answers: list[str | None], entries: list[str], seconds: float) -> list[bool]:
    """Which answers get full marks from the scorers of their entries (JSON); what `seconds` do not suffice for is wrong."""
    pairs = list(zip(answers, entries, strict=True))
    jobs = list(dict.fromkeys(pair for pair in pairs if pair[0] is not None and is_harmless(pair[0])))
    right = {job for job, verdict in zip(jobs, _pool().run(jobs, seconds), strict=True) if verdict == "correct"}
    return [pair in right for pair in pairs]


def is_harmless(answer: str) -> bool:
    """Whether a scorer may evaluate this text as Python.

    Example:
    ```python
    >>> is_harmless("sin(x)**2 + 3*(x - 1)"), is_harmless("[[1, 2], [3, 4]]"), is_harmless("print ('x')")
    (True, True, False)
    ```
    """
    if len(answer) > MAX_LENGTH or "__" in answer:
        return False
    text = re.sub(r"[\s\\]", "", answer)  # Python ignores spaces and line continuations
    calls = CALL.findall(text)
    return FUNCTIONS.issuperset(calls) and not (calls and BESIDE_CALLS.search(text))


@cache
def _pool() -> WorkerPool:
    return WorkerPool(task=__name__)


# ---- Inside the worker ----------------------------------------------------------------------------------------------


def warm_up() -> None:
    """Import what every scorer needs, before the workers fork."""
    import reasoning_gym  # noqa: F401


def check(answer: str, entry: str) -> bool:
    """Whether the scorer of the entry's task gives this answer 1.0."""
    from reasoning_gym import get_score_answer_fn

    entry = json.loads(entry)
    return get_score_answer_fn(entry["metadata"]["source_dataset"])(answer=answer, entry=entry) == 1.0
