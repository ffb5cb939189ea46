"""From the folders of runs to the files of their report."""

from collections.abc import Sequence
from pathlib import Path

from ..files import write_atomically
from .curves import draw_curves
from .example import draw_example, find_example
from .load import load_runs
from .page import render_page
from .quadrants import average_quadrants
from .scatter import draw_gradient_norms, draw_scatters, sample_tokens
from .style import save
from .word_cloud import CLOUDS, count_tokens, draw_cloud


MAX_POINTS = 20_000  # of the scatters of all runs


def build_report(run_dirs: Sequence[str | Path], output: str | Path | None = None) -> Path:
    """
    Write the report of one or several runs: `report.html`, and its figures as PNG and SVG.

    The page holds training curves, tokens over probability and entropy with both thresholds, gradient norm and entropy
    change by quadrant, word clouds, every silenced token in context with its alternatives (of a run that silenced
    nothing, those that STAPO would have silenced), and responses coloured by probability, entropy or silencing. It
    needs no network, and text of the model cannot become markup or code in it. `silenced-token` is a figure of the
    one with the largest gradient. Runs of plain GRPO are read from TRL's checkpoints; the page says what is missing.

    Args:
        run_dirs (`Sequence[str | Path]`):
            Folders of runs: `metrics.jsonl` or TRL's checkpoints, and `token_log/`. Any part may be missing.
        output (`str` or `Path`, *optional*):
            Folder to write to, by default `report` in the first run's folder.

    Returns:
        `Path`: the HTML file.

    Raises:
        `ValueError`: if a folder holds nothing to report.
    """
    folders = [Path(folder) for folder in run_dirs]
    runs = load_runs(folders)
    output = Path(output) if output else folders[0] / "report"
    output.mkdir(parents=True, exist_ok=True)
    samples = [sample_tokens(run, MAX_POINTS // len(runs)) for run in runs]
    counts = [count_tokens(run) for run in runs]
    has_curves = any(len(run.metrics) > 1 for run in runs)

    figures = {"curves": draw_curves(runs)} if has_curves else {}
    drawn = [(sample, run.name) for sample, run in zip(samples, runs, strict=True) if not sample.points.empty]
    if drawn:
        figures["scatter"] = draw_scatters(*map(list, zip(*drawn, strict=True)))
    if any(not average_quadrants(run).empty for run in runs):
        figures["gradient-norms"] = draw_gradient_norms(runs)
    for index, (run, count) in enumerate(zip(runs, counts, strict=True)):
        suffix = f"-{index + 1}" if len(runs) > 1 else ""
        for name, (title, color) in CLOUDS.items():
            if count[name]:
                figures[f"words-{name}{suffix}"] = draw_cloud(count[name], color, title)
        if (row := find_example(run)) is not None:
            figures[f"silenced-token{suffix}"] = draw_example(row, run.number("prob_threshold"))
    for name, figure in figures.items():
        for ending in ("png", "svg"):
            save(figure, output / f"{name}.{ending}")

    path = output / "report.html"
    write_atomically(path, render_page(runs, samples, counts, has_curves))
    return path
