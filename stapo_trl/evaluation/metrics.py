"""Metrics over N samples for each problem, and their uncertainty over problems. NumPy only."""

from collections import Counter
from collections.abc import Hashable, Sequence
from math import comb

import numpy as np


LEVEL = 0.95  # of every interval
RESAMPLES = 10_000


def avg_at_n(num_samples: Sequence[int], num_correct: Sequence[int]) -> np.ndarray:
    """
    Share of right samples of each problem; its mean is avg@N.

    Args:
        num_samples (`Sequence[int]`):
            Samples of each problem, at least 1; they may differ.
        num_correct (`Sequence[int]`):
            Right samples of each problem.

    Returns:
        `np.ndarray` of shape (P,), in [0, 1].

    Raises:
        `ValueError`: if a problem has no sample, or more right samples than samples.

    Example:

    ```python
    >>> avg_at_n([4, 2], [1, 2]).tolist()
    [0.25, 1.0]
    ```
    """
    n, c = np.asarray(num_samples), np.asarray(num_correct)
    if n.shape != c.shape or np.any(n < 1) or np.any(c < 0) or np.any(c > n):
        raise ValueError(f"Every problem needs n >= 1 samples and 0 <= c <= n right ones, got n={n} and c={c}.")
    return c / n


def pass_at_k(num_samples: Sequence[int], num_correct: Sequence[int], k: int) -> np.ndarray:
    r"""
    Chance that at least one of k samples is right, for each problem, without bias: `1 - C(n-c, k) / C(n, k)`.

    Args:
        num_samples (`Sequence[int]`):
            Samples of each problem.
        num_correct (`Sequence[int]`):
            Right samples of each problem.
        k (`int`):
            Samples drawn, from 1 to the smallest number of samples of a problem.

    Returns:
        `np.ndarray` of shape (P,), in [0, 1].

    Raises:
        `ValueError`: for a k below 1, or above the samples of a problem.

    Example: of the 6 pairs of 4 samples, 3 hold the right one.

    ```python
    >>> pass_at_k([4], [1], k=2).tolist()
    [0.5]
    ```
    """
    avg_at_n(num_samples, num_correct)
    _check_k(k, num_samples)
    return np.array(
        [1.0 - comb(int(n - c), k) / comb(int(n), k) for n, c in zip(num_samples, num_correct, strict=True)]
    )


def maj_at_k(votes: Sequence[Sequence[Hashable | None]], correct: Sequence[Sequence[bool]], k: int) -> np.ndarray:
    """
    Share of majority votes among k samples that are right, for each problem.

    The samples are cut into consecutive blocks of k, one vote each; what is left over does not vote. Samples without
    an answer abstain, a block of them alone is wrong, and a tie goes to the answer that was given first.

    Args:
        votes (`Sequence[Sequence[Hashable | None]]`):
            Answers of each problem's samples in a form in which equal ones are equal; `None` where there is none.
        correct (`Sequence[Sequence[bool]]`):
            Whether each sample is right.
        k (`int`):
            Samples in a vote, from 1 to the smallest number of samples of a problem.

    Returns:
        `np.ndarray` of shape (P,), in [0, 1].

    Raises:
        `ValueError`: for a k below 1, or above the samples of a problem.

    Example:

    ```python
    >>> maj_at_k([["7", "5", "5"]], [[True, False, False]], k=3).tolist()  # two of three say 5
    [0.0]
    >>> maj_at_k([["7", "5", None, "7"]], [[True, False, False, True]], k=2).tolist()  # a tie, then 7
    [1.0]
    ```
    """
    _check_k(k, [len(answers) for answers in votes])
    shares = []
    for answers, right in zip(votes, correct, strict=True):
        blocks = [slice(start, start + k) for start in range(0, len(answers) - k + 1, k)]
        shares.append(np.mean([_vote(answers[block], right[block]) for block in blocks]))
    return np.array(shares)


def _vote(answers: Sequence[Hashable | None], right: Sequence[bool]) -> bool:
    counts = Counter(answer for answer in answers if answer is not None)
    if not counts:
        return False
    elected = max(counts, key=counts.get)  # the first of equals, as a Counter keeps the order of arrival
    return bool(right[list(answers).index(elected)])


def _check_k(k: int, num_samples: Sequence[int]) -> None:
    fewest = min(num_samples, default=0)
    if not 1 <= k <= fewest:
        raise ValueError(f"k must be from 1 to {fewest}, the fewest samples of a problem, got {k}: sample more often.")


def interval(values: Sequence[Sequence[float]], low: float = 0.0, high: float = 1.0) -> tuple[float, float]:
    """
    95 % bootstrap interval over problems, of the mean over benchmarks of the means over their problems.

    Problems are drawn with replacement within their benchmark. Where all problems of a benchmark have the same value
    the bootstrap would claim certainty; there, the share `1 - 0.025^(1/P)` of unseen problems may lie at either bound,
    the exact interval of P equal draws.

    Args:
        values (`Sequence[Sequence[float]]`):
            For each benchmark, the values of its problems (differences of two runs, for a paired interval).
        low (`float`, defaults to `0.0`):
            Lowest possible value.
        high (`float`, defaults to `1.0`):
            Highest possible value.

    Returns:
        `tuple[float, float]`: lower and upper end.

    Example: none of 30 problems solved is compatible with a rate of up to 11.6 %.

    ```python
    >>> [round(end, 3) for end in interval([[0.0] * 30])]
    [0.0, 0.116]
    ```
    """
    rng = np.random.default_rng(0)  # the same problems give the same interval
    means, slack_below, slack_above = np.zeros(RESAMPLES), 0.0, 0.0
    for numbers in values:
        numbers = np.asarray(numbers, dtype=float)
        if np.all(numbers == numbers[0]):
            unseen = 1 - ((1 - LEVEL) / 2) ** (1 / len(numbers))
            slack_below += unseen * (numbers[0] - low) / len(values)
            slack_above += unseen * (high - numbers[0]) / len(values)
            means += numbers[0] / len(values)
        else:
            # How often each problem is drawn: cheaper than which one is
            draws = rng.multinomial(len(numbers), np.full(len(numbers), 1 / len(numbers)), size=RESAMPLES)
            means += draws @ numbers / len(numbers) / len(values)
    below, above = np.quantile(means, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(below - slack_below), float(above + slack_above)
