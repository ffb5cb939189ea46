r"""
Chains of additions and subtractions, solved step by step: a verifiable task that needs no download.

A problem reads `12+7-3+13-9=?`, its worked answer `12+7=19;19-3=16;16+13=29;29-9=20;\boxed{20}`. Problems are drawn
from a seed and sorted into splits by a checksum of their text, so the splits are disjoint for any sizes and seeds.
"""

import random
import zlib

from datasets import Dataset


LARGEST_TERM, LARGEST_RESULT = 20, 30  # no intermediate result is negative
SPLITS = {"test": {0}, "validation": {1}, "train": {2, 3, 4, 5, 6, 7, 8, 9}}  # last digits of the checksum


def load_arithmetic(split: str = "train", size: int = 1000, num_terms: int = 5, seed: int = 0) -> Dataset:
    """
    Problems of the embedded task: the same for the same arguments.

    Args:
        split (`str`, defaults to `"train"`):
            `"train"`, `"validation"` or `"test"`.
        size (`int`, defaults to `1000`):
            Number of distinct problems.
        num_terms (`int`, defaults to `5`):
            Numbers in a chain, at least 2.
        seed (`int`, defaults to `0`):
            Seed of the draw.

    Returns:
        `Dataset` with `prompt` (plain text), `solution` (the result, as text), `problem_id` and `source`.

    Raises:
        `ValueError`: for an unknown split, fewer than 2 terms, or more problems than there are.

    Example:

    ```python
    >>> load_arithmetic("test", size=1, num_terms=2)[0]
    {'prompt': '17+12=?', 'solution': '29', 'problem_id': 'arithmetic-test-0', 'source': 'arithmetic'}
    ```
    """
    if split not in SPLITS:
        raise ValueError(f"`split` must be one of {list(SPLITS)}, got {split!r}.")
    if num_terms < 2:
        raise ValueError(f"`num_terms` must be at least 2, got {num_terms}: a chain has two numbers or more.")
    rng = random.Random(f"{split}-{num_terms}-{seed}")
    problems = {}  # a dict, to drop repeats and keep the order
    for _ in range(10_000 + 100 * size):
        if len(problems) == size:
            break
        problem = _draw_problem(rng, num_terms)
        if zlib.crc32(problem.encode()) % 10 in SPLITS[split]:
            problems[problem] = None
    else:
        raise ValueError(
            f"Found only {len(problems)} of {size} distinct problems of {num_terms} terms for the split '{split}': "
            "lower `size` or raise `num_terms`."
        )
    rows = [
        {
            "prompt": f"{problem}=?",
            "solution": str(work_out(problem)[-1][2]),
            "problem_id": f"arithmetic-{split}-{index}",
            "source": "arithmetic",
        }
        for index, problem in enumerate(problems)
    ]
    return Dataset.from_list(rows)


def _draw_problem(rng: random.Random, num_terms: int) -> str:
    result = rng.randint(1, LARGEST_TERM)
    problem = str(result)
    for _ in range(num_terms - 1):
        low, high = max(-LARGEST_TERM, -result), min(LARGEST_TERM, LARGEST_RESULT - result)
        change = rng.choice([number for number in range(low, high + 1) if number != 0])
        result += change
        problem += f"{change:+d}"
    return problem


def work_out(problem: str) -> list[tuple[int, str, int]]:
    """The steps of a chain: `"12+7-3=?"` gives `[(12, "+7", 19), (19, "-3", 16)]`."""
    operations = problem.removesuffix("=?").replace("+", " +").replace("-", " -").split()
    value, steps = int(operations[0]), []
    for operation in operations[1:]:
        steps.append((value, operation, value + int(operation)))
        value = steps[-1][2]
    return steps


def write_answer(problem: str, rng: random.Random | None = None, slip_rate: float = 0.0) -> str:
    r"""
    A worked answer, each step with a slip at this rate, of the three kinds that the paper finds among spurious tokens.

    They are odd wording, a wrong intermediate result that is not used afterwards, and stray formatting; none changes
    the final answer.

    ```python
    >>> write_answer("12+7-3=?")
    '12+7=19;19-3=16;\\boxed{16}'
    ```
    """
    text = ""
    for before, operation, after in work_out(problem):
        kind = rng.choice(["wording", "result", "format"]) if slip_rate > 0 and rng.random() < slip_rate else None
        if kind == "wording":
            text += rng.choice(["so", "then", "wait", "let"]) + " "
        if kind == "result":
            after = rng.randint(0, LARGEST_RESULT)
        step = f"{before}{operation}={after};"
        if kind == "format":
            position = rng.randrange(len(step))
            step = step[:position] + rng.choice("$ =;") + step[position:]
        text += step
    return text + f"\\boxed{{{work_out(problem)[-1][2]}}}"
