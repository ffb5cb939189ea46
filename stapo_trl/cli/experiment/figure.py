"""Curves of an experiment: for each method, the mean over its seeds in a band from the lowest to the highest."""

from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from ...observe.report.curves import PANELS, Panel, smooth
from ...observe.report.load import Run, load_runs
from ...observe.report.style import RUNS, SILENCED, color_of_run, save, styled


ADDED = [
    Panel("sampled", "Held-out accuracy, sampled", "%", {"": ("heldout/sampled_accuracy",)}),
    Panel("candidates", "Candidate tokens", "%", {"": ("s2t/candidate_share",)}),
    Panel("silenced", "Silenced tokens", "%", {"": ("s2t/silenced_share",)}),
]
LINES = ("-", "--", ":")  # for more methods than there are colours


def draw_experiment(folders: dict[str, list[Path]], path: Path) -> None:
    """Draw the curves of all methods, from the folders of their runs, in one file; its suffix names the format."""
    save(draw_bands({method: load_runs(paths) for method, paths in folders.items() if paths}), path)


@styled
def draw_bands(runs: dict[str, list[Run]]) -> Figure:
    """The figure of [`draw_experiment`]."""
    panels = [panel for panel in PANELS if panel.name != "shares"] + ADDED
    others = [method for method in runs if method != "stapo"]
    looks = {name: (color_of_run(i), LINES[i // len(RUNS) % len(LINES)]) for i, name in enumerate(others)}
    looks["stapo"] = (SILENCED, "-")
    figure = Figure(figsize=(13, 5.8), layout="constrained")
    for axes, panel in zip(figure.subplots(2, 4).flat, panels, strict=True):
        for method, members in runs.items():
            curves = [run.series(*panel.lines[""]) * (100 if panel.unit == "%" else 1) for run in members]
            table = pd.concat([smooth(curve) for curve in curves], axis=1)
            if table.empty:
                continue
            color, line = looks[method]
            axes.plot(table.index, table.mean(axis=1), color=color, linestyle=line, label=method)
            axes.fill_between(table.index, table.min(axis=1), table.max(axis=1), color=color, alpha=0.12, linewidth=0)
        axes.set_title(panel.title)
        axes.set_ylabel(panel.unit)
        axes.set_xlabel("optimizer step")
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper left", ncols=7)
    return figure
