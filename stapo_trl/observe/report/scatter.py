"""Tokens of correct responses over probability and entropy, with the two thresholds and the quadrants they make."""

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pyarrow.compute as pc
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator

from ...rules.s2t import MIN_ADVANTAGE
from ..text import show_token
from .load import Run
from .quadrants import TITLES, average_quadrants
from .style import GRID, INK, MUTED, SILENCED, color_of_run, format_power, styled


LOWEST_PROB = 1e-10  # less probable tokens are drawn here
ENTROPY_TICKS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 3, 4, 5, 6, 8, 10, 12)
MIDTONE = "#8793a0"  # for the points, which are one bitmap for light and dark pages


@dataclass
class TokenSample:
    points: pd.DataFrame  # prob, entropy (nats), silenced, candidate, step, token (as it is shown)
    num_tokens: int  # of those in the log with a positive advantage, of which the points are a sample
    prob_threshold: float | None  # tau_p, if the log has it
    entropy_thresholds: tuple[float, float, float] | None  # 10 %, 50 % and 90 % quantile of tau_h over the steps, nats


def sample_tokens(run: Run, limit: int) -> TokenSample:
    """At most `limit` tokens with a positive advantage, up to a half silenced and a quarter other candidates, on top."""
    columns = ["prob", "entropy", "silenced", "candidate", "step"]
    table = run.tokens.select(columns)
    finite = pc.and_(pc.is_finite(table["prob"]), pc.is_finite(table["entropy"]))
    indices = np.flatnonzero(
        pc.and_kleene(finite, pc.greater(run.tokens["advantage"], MIN_ADVANTAGE)).fill_null(False)
    )
    frame = table.take(indices).to_pandas()
    silenced, candidate = frame["silenced"].eq(True), frame["candidate"].eq(True)
    chosen, room = [], limit
    for group, most in ((silenced, limit // 2), (candidate & ~silenced, limit // 4), (~candidate & ~silenced, limit)):
        rows = frame[group]
        rows = rows.sample(min(len(rows), most, room), random_state=0)
        chosen.insert(0, rows)
        room -= len(rows)
    points = pd.concat(chosen)
    points["token"] = [
        show_token(token or "") for token in run.tokens["token"].take(indices[points.index]).to_pylist()
    ]
    thresholds = run.series("s2t/entropy_threshold")
    if thresholds.empty and table.num_rows:
        values = (
            run.tokens.select(["step", "entropy_threshold"]).to_pandas().groupby("step").first()["entropy_threshold"]
        )
        thresholds = values[np.isfinite(values)]
    return TokenSample(
        points,
        len(frame),
        run.number("prob_threshold"),
        tuple(float(thresholds.quantile(q)) for q in (0.1, 0.5, 0.9)) if len(thresholds) else None,
    )


def _root(values: np.ndarray) -> np.ndarray:
    return np.sqrt(np.maximum(values, 0.0))  # rounding leaves some entropies a little below zero


@styled
def draw_scatter(axes: Axes, sample: TokenSample, title: str = "") -> None:
    points = sample.points
    probs = points["prob"].clip(lower=LOWEST_PROB)
    lowest = 10.0 ** math.floor(
        math.log10(min(probs.min() if len(points) else 1.0, sample.prob_threshold or 1.0, 1e-4))
    )
    highest = max(points["entropy"].max() if len(points) else 0.0, *(sample.entropy_thresholds or (0.1,))) * 1.05
    axes.set_xscale("log")
    axes.set_yscale("function", functions=(_root, np.square))  # silenced tokens lie close to zero
    axes.xaxis.set_major_locator(LogLocator(numticks=6))
    axes.xaxis.set_major_formatter(format_power)
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlim(lowest, 1.6)
    axes.set_ylim(0, highest)
    ticks = [0.0]
    for tick in ENTROPY_TICKS:
        if tick <= highest and math.sqrt(tick) - math.sqrt(ticks[-1]) > 0.08 * math.sqrt(highest):
            ticks.append(tick)
    axes.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    silenced, candidate = points["silenced"].eq(True), points["candidate"].eq(True)
    groups = [
        (~candidate & ~silenced, dict(color=MIDTONE, alpha=0.35, s=5)),
        (candidate & ~silenced, dict(facecolors="none", edgecolors=MIDTONE, linewidths=0.9, s=14)),
        (silenced, dict(color="#e8590c", alpha=0.8, s=11)),
    ]
    for group, style in groups:
        axes.scatter(
            probs[group], points["entropy"][group], rasterized=True, clip_on=False, **{"linewidths": 0} | style
        )
    if sample.prob_threshold:
        axes.axvline(sample.prob_threshold, color=INK, linewidth=0.9, linestyle=(0, (4, 2)))
        axes.text(
            sample.prob_threshold,
            1.01,
            f" τp = {sample.prob_threshold:g}",
            transform=axes.get_xaxis_transform(),
            color=INK,
            ha="center",
            va="bottom",
            fontsize=8.5,
        )
    if sample.entropy_thresholds:
        low, median, high = sample.entropy_thresholds
        axes.axhspan(low, high, color=GRID, alpha=0.6, linewidth=0, zorder=0)
        axes.axhline(median, color=INK, linewidth=0.9, linestyle=(0, (4, 2)))
        axes.text(
            1.01, median, "τh", transform=axes.get_yaxis_transform(), color=INK, ha="left", va="center", fontsize=8.5
        )
    axes.set_xlabel("probability")
    axes.set_ylabel("entropy, nats (square-root scale)")
    axes.set_title(title, pad=16)


@styled
def draw_scatters(samples: list[TokenSample], names: list[str]) -> Figure:
    columns = min(len(samples), 3)
    rows = -(-len(samples) // columns)
    figure = Figure(figsize=(5.2 * columns, 4.2 * rows), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False).flat
    for axes, sample, name in zip(grid, samples, names, strict=False):
        draw_scatter(axes, sample, name)
    for axes in list(grid)[len(samples) :]:
        axes.set_visible(False)
    return figure


@styled
def draw_gradient_norms(runs: list[Run]) -> Figure:
    """Mean gradient norm of a token by quadrant; at least one of the runs has to have logged them."""
    figure = Figure(figsize=(4.6, 3.6), layout="constrained")
    axes = figure.subplots()
    width = 0.76 / len(runs)
    for index, run in enumerate(runs):
        norms = average_quadrants(run).reindex(list(TITLES))["gradient_norm"].astype(float)
        places = np.arange(len(norms)) + (index - (len(runs) - 1) / 2) * width
        bars = axes.bar(places, norms.fillna(0.0), width * 0.9, color=color_of_run(index), gid=f"run-{index}")
        if len(runs) == 1:
            bars[-1].set_facecolor(SILENCED)
        labels = ["none" if math.isnan(norm) else f"{norm:.2g}" for norm in norms]
        if len(runs) <= 3:
            axes.bar_label(bars, labels, color=INK, fontsize=8.5 if len(runs) == 1 else 7, padding=2)
    axes.set_xticks(range(4), [title.replace(", ", "\n") for title in TITLES.values()], color=MUTED)
    axes.set_title("Mean gradient norm of a token, at its logits")
    axes.grid(axis="x", visible=False)
    axes.margins(y=0.1)
    if len(runs) > 1:
        axes.legend(list(axes.containers), [run.name for run in runs], loc="upper left")
    return figure
