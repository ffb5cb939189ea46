"""The difference of two results, and whether it is more than noise."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from .metrics import interval


def compare(first: dict, second: dict) -> dict[str, dict]:
    """
    Difference in accuracy of two results, second minus first, by a paired bootstrap over the problems of both.

    Args:
        first (`dict`), second (`dict`):
            Results of [`evaluate`].

    Returns:
        `dict[str, dict]`: for each benchmark of both, and for their mean under `"overall"` if there are several: the
        number of `problems`, accuracies `first` and `second` and their `difference`, its 95 % `interval`, and
        `is_noise`, whether that holds 0.

    Raises:
        `ValueError`: if no problem is in both results, or a benchmark has different problems or golds in them.

    Example:

    ```python
    >>> first = {"benchmarks": {"sums": {"per_problem": {f"problem {i}": [1, 4] for i in range(12)}}}}
    >>> second = {"benchmarks": {"sums": {"per_problem": {f"problem {i}": [3, 4] for i in range(12)}}}}
    >>> row = compare(first, second)["sums"]
    >>> row["difference"], row["is_noise"]
    (0.5, False)
    ```
    """
    shares, report = {}, {}
    for name, entry in first["benchmarks"].items():
        other = second["benchmarks"].get(name)
        if other is None:
            continue
        ours, theirs = entry["per_problem"], other["per_problem"]
        if ours.keys() != theirs.keys() or entry.get("dataset") != other.get("dataset"):
            raise ValueError(
                f"{name} has different problems, prompts or golds in the two results ({len(ours)} and {len(theirs)} "
                "problems): they cannot be compared problem by problem. Evaluate both on the same data."
            )
        shares[name] = tuple(
            np.array([right / n for right, n in (part[problem] for problem in ours)]) for part in (ours, theirs)
        )
        report[name] = _row([shares[name]])
    if not shares:
        raise ValueError(
            f"No benchmark is in both results: {sorted(first['benchmarks'])} and {sorted(second['benchmarks'])}."
        )
    if len(shares) > 1:
        report["overall"] = _row(list(shares.values()))
    return report


def _row(pairs: Sequence[tuple[np.ndarray, np.ndarray]]) -> dict:
    low, high = interval([theirs - ours for ours, theirs in pairs], -1.0, 1.0)
    before, after = (float(np.mean([pair[side].mean() for pair in pairs])) for side in (0, 1))
    return {
        "problems": sum(len(ours) for ours, _ in pairs),
        "first": before,
        "second": after,
        "difference": after - before,
        "interval": [low, high],
        "is_noise": low <= 0 <= high,
    }


def different_settings(first: dict, second: dict) -> list[str]:
    """Settings, other than the model, in which two results differ."""
    pairs = {name: (first.get(name), second.get(name)) for name in ("backend", "judge")}
    pairs["chat_template_kwargs"] = tuple(result.get("chat_template_kwargs") or {} for result in (first, second))
    pairs |= {
        name: (first["sampling"].get(name), second["sampling"].get(name))
        for name in first["sampling"].keys() | second["sampling"].keys()
    }
    grader = ("math-verify", "sympy", "latex2sympy2_extended", "stapo-trl")
    pairs |= {name: (first["versions"].get(name), second["versions"].get(name)) for name in grader}
    return [f"{name}: {ours} and {theirs}" for name, (ours, theirs) in sorted(pairs.items()) if ours != theirs]


def read_result(path: str | Path) -> dict:
    """The result of [`evaluate`] in a `.json` file; `ValueError` for a file that is none, or has impossible counts."""
    try:
        result = json.loads(Path(path).read_text(encoding="utf-8-sig"))
        counts = [count for entry in result["benchmarks"].values() for count in entry["per_problem"].values()]
        are_integers = all(type(number) is int for count in counts for number in count)
        if not (are_integers and counts and all(0 <= right <= n and n > 0 for right, n in counts)):
            raise ValueError("its `per_problem` does not hold [right, all] of each problem")
        result["sampling"].items(), result["versions"].items(), result["model"], result["decoding"]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"{path} is not a result of `stapo evaluate`: {error!r}.") from error
    return result
