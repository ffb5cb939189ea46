"""Results of an experiment: for each method mean and spread over the seeds, and its paired difference from STAPO."""

import json
import math
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import mpmath
import numpy as np

from ...observe.files import read_metrics


LATE = 0.25  # late metrics are averaged over this share of the optimizer steps, the last ones
SPIKE = 20  # an optimizer step is a spike if its gradient norm is above so many times the run's median
# Name -> (title, factor, digits, keys in the metrics of an optimizer step, if it is read from them)
COLUMNS = {
    "greedy": ("greedy %", 100, 1, ()),
    "sampled": ("sampled %", 100, 1, ()),
    "heldout": ("late held-out greedy %", 100, 1, ("heldout/greedy_accuracy",)),
    "entropy": ("late entropy, nats", 1, 4, ("s2t/entropy", "entropy")),
    "candidates": ("late candidates %", 100, 4, ("s2t/candidate_share",)),
    "reward": ("late reward", 1, 3, ("reward",)),
    "grad_norm": ("late gradient norm", 1, 3, ("grad_norm",)),
    "spikes": ("gradient spikes", 1, 1, ()),
    "silenced": ("silenced %", 100, 4, ("s2t/silenced_share",)),
}


@dataclass(frozen=True)
class Cell:
    """
    One number of a method over the seeds: mean and standard deviation (of a sample; NaN for one seed).

    `difference` is STAPO minus this method, the mean over the seeds that both have, with its 95 % `interval` by
    Student's t (infinite for one seed).
    """

    mean: float
    deviation: float
    difference: float
    interval: tuple[float, float]

    @property
    def is_noise(self) -> bool:
        return self.interval[0] <= 0.0 <= self.interval[1]


def read_run(folder: Path) -> dict[str, float] | None:
    """The numbers of [`COLUMNS`] of a finished run, or `None`."""
    try:
        result = json.loads((folder / "result.json").read_text())
    except FileNotFoundError:
        return None
    entries = read_metrics(folder / "metrics.jsonl")
    first = (1 - LATE) * max(entry["step"] for entry in entries)
    norms = np.array([entry["grad_norm"] for entry in entries if "grad_norm" in entry])
    result["spikes"] = float((norms > SPIKE * np.median(norms)).sum()) if len(norms) else 0.0
    numbers = {}
    for name, (_, _, _, keys) in COLUMNS.items():
        if not keys:
            numbers[name] = result[name]
            continue
        # The silenced share is over the whole run, everything else over late training
        steps = [entry for entry in entries if name == "silenced" or entry["step"] > first]
        values = [next(entry[key] for key in keys if key in entry) for entry in steps if any(k in entry for k in keys)]
        numbers[name] = float(np.mean(values)) if values else 0.0
    return numbers


def compare_methods(runs: dict[str, dict[int, dict[str, float]]]) -> dict[str, dict[str, Cell]]:
    """
    A [`Cell`] for each method and number, from the numbers of [`read_run`] by method and seed.

    Two seeds that agree in the difference:

    ```python
    >>> runs = {"stapo": {0: {"greedy": 0.5}, 1: {"greedy": 0.7}}, "grpo": {0: {"greedy": 0.4}, 1: {"greedy": 0.6}}}
    >>> cell = compare_methods(runs)["grpo"]["greedy"]
    >>> round(cell.mean, 3), round(cell.difference, 3), cell.is_noise
    (0.5, 0.1, False)
    ```
    """
    return {
        method: {name: _cell(name, seeds, runs.get("stapo", {})) for name in next(iter(seeds.values()))}
        for method, seeds in runs.items()
        if seeds
    }


def _cell(name: str, seeds: dict, reference: dict) -> Cell:
    values = [numbers[name] for numbers in seeds.values()]
    deviation = float(np.std(values, ddof=1)) if len(values) > 1 else math.nan
    pairs = [reference[seed][name] - numbers[name] for seed, numbers in seeds.items() if seed in reference]
    difference = float(np.mean(pairs)) if pairs else math.nan
    return Cell(float(np.mean(values)), deviation, difference, _interval(pairs, difference))


def _interval(pairs: list[float], difference: float) -> tuple[float, float]:
    if len(pairs) < 2:
        return (-math.inf, math.inf)
    margin = student_quantile(len(pairs) - 1) * float(np.std(pairs, ddof=1)) / math.sqrt(len(pairs))
    return (difference - margin, difference + margin)


@cache
def student_quantile(degrees: int) -> float:
    """How many standard errors a 95 % interval of Student's t reaches to either side."""
    # P(|T| > t) = I_x(degrees / 2, 1 / 2) at x = degrees / (degrees + t^2)
    tail = lambda x: mpmath.betainc(degrees / 2, 0.5, 0, x, regularized=True) - 0.05  # noqa: E731
    x = mpmath.findroot(tail, (0, 1), solver="bisect", tol=1e-14, maxsteps=100)
    return float(mpmath.sqrt(degrees * (1 - x) / x))


def to_markdown(table: dict[str, dict[str, Cell]], num_seeds: dict[str, int]) -> str:
    """Two Markdown tables: mean ± standard deviation over seeds, and STAPO's paired differences, bold unless noise."""
    titles = [title for title, *_ in COLUMNS.values()]
    lines = ["| method | seeds | " + " | ".join(titles) + " |", "|---|---|" + "---|" * len(titles)]
    for method, cells in table.items():
        numbers = []
        for name, (_, factor, digits, _) in COLUMNS.items():
            cell = cells[name]
            spread = "" if math.isnan(cell.deviation) else f" ± {factor * cell.deviation:.{digits}f}"
            numbers.append(f"{factor * cell.mean:.{digits}f}{spread}")
        lines.append(f"| {method} | {num_seeds[method]} | " + " | ".join(numbers) + " |")
    lines += ["", "STAPO minus the method, paired by seed, with 95 % interval:", ""]
    lines += ["| method | " + " | ".join(titles) + " |", "|---|" + "---|" * len(titles)]
    for method, cells in table.items():
        if method != "stapo":
            numbers = [
                _describe_difference(cells[name], factor, digits) for name, (_, factor, digits, _) in COLUMNS.items()
            ]
            lines.append(f"| {method} | " + " | ".join(numbers) + " |")
    return "\n".join(lines) + "\n"


def _describe_difference(cell: Cell, factor: float, digits: int) -> str:
    if math.isnan(cell.difference):
        return "no pair"
    low, high = (f"{factor * end:+.{digits}f}" for end in cell.interval)
    text = f"{factor * cell.difference:+.{digits}f} " + (
        f"({low} to {high})" if math.isfinite(cell.interval[0]) else "(one pair)"
    )
    return text if cell.is_noise else f"**{text}**"
