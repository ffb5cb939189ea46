"""Training curves: reward, held-out accuracy, entropy, silenced and candidate share, gradient norm, length."""

from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator, NullFormatter

from .load import Run, load_runs
from .style import MUTED, SILENCED, color_of_run, format_power, save, styled


@dataclass(frozen=True)
class Panel:
    name: str  # unique in the page
    title: str
    unit: str  # metrics in "%" are logged as fractions
    lines: dict[
        str, tuple[str, ...]
    ]  # label of a line -> keys of its metric, of which the first that was logged counts


PANELS = [
    Panel("reward", "Reward", "mean of the samples", {"": ("reward",)}),
    Panel("accuracy", "Held-out accuracy", "%", {"": ("heldout/greedy_accuracy",)}),
    Panel("entropy", "Entropy", "nats per token", {"": ("s2t/entropy", "entropy")}),
    Panel(
        "shares",
        "Silenced and candidate tokens",
        "%",
        {"silenced": ("s2t/silenced_share",), "candidates": ("s2t/candidate_share",)},
    ),
    Panel("gradient", "Gradient norm", "of the whole model", {"": ("grad_norm",)}),
    Panel("length", "Completion length", "tokens", {"": ("completions/mean_length",)}),
]
DASHES = {"": "-", "silenced": "-", "candidates": (0, (4, 2))}


def read_lines(panel: Panel, run: Run) -> dict[str, pd.Series]:
    """The lines of a run that have values, in the panel's unit."""
    lines = {label: run.series(*keys) * (100 if panel.unit == "%" else 1) for label, keys in panel.lines.items()}
    return {label: values for label, values in lines.items() if len(values) > 0}


def smooth(values: pd.Series) -> pd.Series:
    """
    Moving average over a twentieth of a curve, five points at least; curves of up to 30 points stay as they are.

    Example:

    ```python
    >>> smooth(pd.Series([0.0, 1.0])).tolist()
    [0.0, 1.0]
    ```
    """
    if len(values) <= 30:
        return values
    return values.rolling(max(5, len(values) // 20), center=True, min_periods=1).mean()


@styled
def draw_panel(axes: Axes, panel: Panel, runs: list[Run]) -> None:
    """A line for each run and metric, with the values behind it where it was smoothed."""
    drawn = []
    for index, run in enumerate(runs):
        for label, values in read_lines(panel, run).items():
            color = SILENCED if label == "silenced" and len(runs) == 1 else color_of_run(index)
            style = dict(color=color, gid=f"run-{index}")
            line = smooth(values)
            if line is not values:
                axes.plot(values.index, values, ".", alpha=0.4, markersize=2.5, markeredgewidth=0, **style)
            axes.plot(
                line.index,
                line,
                linestyle=DASHES[label],
                marker="o" if len(line) <= 15 else None,
                markersize=3,
                **style,
            )
            drawn.append(values)
    axes.set_title(f"{panel.title}, {panel.unit}")
    axes.set_xlabel("optimizer step")
    if not drawn:
        axes.text(0.5, 0.5, "not logged", transform=axes.transAxes, ha="center", va="center", color=MUTED)
        axes.set_xticks([])
        axes.set_yticks([])
        return
    everything = pd.concat(drawn)
    lowest, highest = everything.min(), everything.max()
    if lowest > 0 and highest > 100 * everything.median():
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(format_power)
        axes.yaxis.set_minor_formatter(NullFormatter())
    elif 0 <= lowest < highest / 2:
        axes.set_ylim(0, 1.06 * highest)
    steps = [step for run in runs for step in run.metrics.index]
    axes.set_xlim(min(steps) - 0.02 * max(steps), 1.02 * max(steps))
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    if len(panel.lines) > 1:
        colors = {"silenced": SILENCED, "candidates": color_of_run(0)} if len(runs) == 1 else {}
        handles = [
            Line2D([], [], color=colors.get(label, MUTED), linestyle=DASHES[label], label=label)
            for label in panel.lines
        ]
        axes.legend(handles=handles, loc="upper right")


@styled
def draw_curves(runs: list[Run]) -> Figure:
    figure = Figure(figsize=(10.5, 5.6), layout="constrained")
    for axes, panel in zip(figure.subplots(2, 3).flat, PANELS, strict=True):
        draw_panel(axes, panel, runs)
    if len(runs) > 1:
        handles = [Line2D([], [], color=color_of_run(index), label=run.name) for index, run in enumerate(runs)]
        figure.legend(handles=handles, loc="outside upper left", ncols=4)
    return figure


def draw_run(run_dir: str | Path) -> Path:
    """Draw the training curves of a run as `metrics.png` in its folder, and return its path."""
    path = Path(run_dir) / "metrics.png"
    save(draw_curves(load_runs([Path(run_dir)])), path)
    return path
