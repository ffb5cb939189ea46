"""A picture of a run: reward, held-out accuracy, entropy and silenced share over the optimizer steps."""

import os
from pathlib import Path

from .progress import read_metrics


PANELS = {
    "reward": ("Mean reward of the samples", ["reward"]),
    "accuracy": ("Greedy accuracy on held-out problems", ["heldout/greedy_accuracy"]),
    "entropy": ("Entropy of all tokens, nats", ["s2t/entropy"]),
    "silenced": ("Share of all tokens", ["s2t/candidate_share", "s2t/silenced_share"]),
}


def draw_run(run_dir: str | Path) -> Path:
    """
    Draw `metrics.jsonl` of a run as `metrics.png` beside it.

    Args:
        run_dir (`str` or `Path`):
            The run's folder.

    Returns:
        `Path`: the picture.

    Raises:
        `ImportError`: without matplotlib (`pip install "stapo-trl[plot]"`).
    """
    from matplotlib.figure import Figure  # not pyplot: no window system, no global state

    entries = read_metrics(Path(run_dir) / "metrics.jsonl")
    figure = Figure(figsize=(9, 6), layout="constrained")
    for axes, (title, keys) in zip(figure.subplots(2, 2).flat, PANELS.values(), strict=True):
        for key in keys:
            points = [(entry["step"], entry[key]) for entry in entries if entry.get(key) is not None]
            steps, values = zip(*points, strict=True) if points else ((), ())
            sparse = len(points) < len(entries) / 2
            # Shares jump between zero and a few tokens: dots, as a line through them would be a wall
            style = "." if len(keys) > 1 else "o-" if sparse else "-"
            axes.plot(steps, values, style, markersize=4, linewidth=1.2, label=key)
        axes.set_title(title, fontsize=10)
        axes.set_xlabel("optimizer step", fontsize=8)
        axes.tick_params(labelsize=8)
        axes.grid(alpha=0.3)
        if len(keys) > 1:
            axes.legend(fontsize=8, framealpha=0.9)
            axes.set_yscale("symlog", linthresh=1e-4)
    path = Path(run_dir) / "metrics.png"
    unfinished = path.with_suffix(".tmp.png")
    figure.savefig(unfinished, dpi=120)
    os.replace(unfinished, path)
    return path
