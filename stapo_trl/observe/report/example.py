"""One spurious token in its context, beside the tokens that the policy preferred: a row of the paper's tables, drawn."""

import math

import numpy as np
import pyarrow.compute as pc
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch
from matplotlib.text import Text

from ..text import LONGEST, show_text, show_token
from .load import Run
from .style import DPI, GRID, INK, MONOSPACE, MUTED, SILENCED, find_families, styled
from .tables import find_spurious


WIDTH, MARGIN, LINE = 600, 20, 17  # points
RIGHT = 378  # where the second column begins
NUM_ALTERNATIVES = 5
CARD, CONTEXT, PREFERRED = "#ffffff", "#f3f5f7", "#aeb8c2"


def find_example(run: Run) -> dict | None:
    """The row of the spurious token with the largest gradient, of those with alternatives if the log has any."""
    rows = run.tokens.take(find_spurious(run)[0])
    if not rows.num_rows:
        return None
    norms = np.nan_to_num(rows["gradient_norm"].to_numpy(), posinf=0.0)
    has_alternatives = pc.fill_null(pc.greater(pc.list_value_length(rows["top_tokens"]), 0), False).to_numpy()
    return rows.slice(np.lexsort((norms, has_alternatives))[-1], 1).to_pylist()[0]


@styled
def draw_example(row: dict, prob_threshold: float | None = None) -> Figure:
    """
    Draw a token with the text around it, the most probable tokens of its position, and what made it spurious.

    Args:
        row (`dict`):
            A row of the token log, see [`find_example`]. Any value may be `None`.
        prob_threshold (`float`, *optional*):
            tau_p of the run.

    Returns:
        `Figure`: a white card on a transparent ground, for pages of any colour.
    """
    bars = _list_bars(row)
    height = 150 + LINE * max(len(bars), 4)
    figure = Figure(figsize=(WIDTH / 72, height / 72), facecolor="none", dpi=DPI)
    axes = figure.add_axes((0, 0, 1, 1), xlim=(0, WIDTH), ylim=(0, height))
    axes.set_axis_off()
    _add_box(axes, 1, 1, WIDTH - 2, height - 2, CARD, radius=8, edgecolor=GRID)
    title = "A token that STAPO silenced" if row["silenced"] else "A token that STAPO would have silenced"
    sentence = "Improbable, in a response that was rewarded: GRPO would reinforce it, STAPO leaves it out of the loss."
    if row["silenced"] and not row["candidate"]:  # by a rule of the user's
        title, sentence = "A silenced token", "The token rule of this run leaves it out of the loss."
    edited = row.get("edited_advantage")
    if edited is not None and not row["silenced"]:
        title = "A token with an advantage of its own"
        sentence = f"The token rule of this run makes {edited:.3g} of the response's {row['advantage'] or 0:.3g}."
    axes.text(MARGIN, height - 31, title, fontsize=13, weight="bold")
    if row["step"] is not None:
        axes.text(WIDTH - MARGIN, height - 31, f"step {row['step']:,}", color=MUTED, ha="right")
    axes.text(MARGIN, height - 49, sentence, color=MUTED)
    _draw_context(axes, row, height - 98)
    preferred = "What the policy would rather have written" + ("" if row["top_tokens"] else " was not logged")
    axes.text(MARGIN, height - 120, preferred, color=MUTED)
    _draw_bars(axes, bars, height - 142)
    axes.text(RIGHT, height - 120, "In numbers", color=MUTED)
    _draw_numbers(axes, row, prob_threshold, height - 140)
    return figure


def _draw_context(axes: Axes, row: dict, bottom: float) -> None:
    room = WIDTH - 2 * MARGIN - 32
    style = dict(fontsize=13, family=find_families(MONOSPACE))
    token = _fit_text(axes, show_token(row["token"] or ""), 0.4 * room, **style, weight="bold", color=CARD)
    room -= _measure(token)
    before = _fit_text(axes, show_text((row["before"] or "")[-LONGEST:]), 0.66 * room, keep_end=True, **style)
    after = _fit_text(axes, show_text((row["after"] or "")[:LONGEST]), room - _measure(before), **style)
    gap, widths = 5, [_measure(text) for text in (before, token, after)]
    left = (WIDTH - sum(widths) - 2 * gap) / 2
    _add_box(axes, MARGIN, bottom, WIDTH - 2 * MARGIN, 34, CONTEXT, radius=5)
    _add_box(axes, left + widths[0] + gap - 3, bottom + 5, widths[1] + 6, 24, SILENCED, radius=4)
    for text, width in zip((before, token, after), widths, strict=True):
        text.set_position((left, bottom + 12))
        left += width + gap


def _list_bars(row: dict) -> list[tuple[str, float | None, bool]]:
    """Token, probability, and whether it is the one that was sampled; that one comes last if it is no alternative."""
    pairs = list(zip(row["top_tokens"] or [], row["top_probs"] or [], strict=False))[:NUM_ALTERNATIVES]
    bars = [(token or "", prob, token == row["token"]) for token, prob in pairs]
    if not any(is_sampled for _, _, is_sampled in bars):
        bars.append((row["token"] or "", row["prob"], True))
    return bars


def _draw_bars(axes: Axes, bars: list[tuple[str, float | None, bool]], top: float) -> None:
    labels = [
        _fit_text(
            axes,
            show_token(token),
            110,
            family=find_families(MONOSPACE),
            fontsize=10,
            color=SILENCED if is_sampled else INK,
            weight="bold" if is_sampled else "normal",
        )
        for token, _, is_sampled in bars
    ]
    zero = MARGIN + 8 + max(map(_measure, labels))
    full = 290 - zero  # points of a bar of 100 %
    for index, (label, (_, prob, is_sampled)) in enumerate(zip(labels, bars, strict=True)):
        bottom = top - LINE * index
        label.set_position((zero - 8 - _measure(label), bottom + 2))
        width = max(1.0, full * min(_finite(prob) or 0.0, 1.0))
        _add_box(axes, zero, bottom, width, 11, SILENCED if is_sampled else PREFERRED)
        axes.text(
            zero + width + 5,
            bottom + 2,
            format_percent(prob) + (" ← sampled" if is_sampled else ""),
            color=label.get_color(),
            weight=label.get_weight(),
        )


def _draw_numbers(axes: Axes, row: dict, prob_threshold: float | None, top: float) -> None:
    threshold = _finite(row["entropy_threshold"])
    lines = [
        ("probability", format_percent(row["prob"]), f"τp = {100 * prob_threshold:g} %" if prob_threshold else ""),
        ("entropy, nats", _format(row["entropy"]), "" if threshold is None else f"τh = {_format(threshold)}"),
        ("advantage", _format(row["advantage"], "+"), ""),
        ("gradient norm", _format(row["gradient_norm"]), ""),
    ]
    for index, (name, value, limit) in enumerate(lines):
        baseline = top - LINE * index
        axes.text(RIGHT, baseline, name)
        axes.text(RIGHT + 76, baseline, value, weight="bold")
        axes.text(RIGHT + 136, baseline, limit, color=MUTED)


def format_percent(prob: float | None) -> str:
    """
    A probability in percent, with enough digits to tell it from 0 and from 100.

    Example:

    ```python
    >>> format_percent(0.99784), format_percent(0.999968), format_percent(9.2e-5), format_percent(None)
    ('99.78 %', '99.997 %', '0.0092 %', '–')
    ```
    """
    if _finite(prob) is None:
        return "–"
    percent = 100 * prob
    if percent < 0.1:
        return f"{percent:.2g} %".replace("e-0", "e−")
    return f"{percent:.2f} %" if percent < 99.99 else f"{percent:.3f} %"


def _format(value: float | None, sign: str = "") -> str:
    return "–" if _finite(value) is None else f"{value:{sign}.3g}".replace("-", "−")


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _add_box(axes: Axes, left, bottom, width, height, color: str, radius: float = 0, edgecolor: str = "none") -> None:
    shape = f"round,pad=0,rounding_size={radius}" if radius else "square,pad=0"
    axes.add_patch(
        FancyBboxPatch((left, bottom), width, height, shape, facecolor=color, edgecolor=edgecolor, linewidth=0.8)
    )


def _measure(text: Text) -> float:
    """Width in points."""
    return text.get_window_extent().width * 72 / text.figure.dpi


def _fit_text(axes: Axes, content: str, room: float, keep_end: bool = False, **style) -> Text:
    """The longest beginning (or end) of `content` that fits `room` points, with an ellipsis where it is cut."""
    text = axes.text(0, 0, content, **style)

    def cut(length: int) -> str:
        if length == len(content):
            return content
        return "…" + content[len(content) - length :] if keep_end else content[:length] + "…"

    low, high = 0, len(content)
    while low < high:
        middle = (low + high + 1) // 2
        text.set_text(cut(middle))
        low, high = (middle, high) if _measure(text) <= room else (low, middle - 1)
    text.set_text(cut(low))
    return text
