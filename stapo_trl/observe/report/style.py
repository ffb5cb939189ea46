"""Colours and matplotlib settings of the figures, in files and inside the page."""

import functools
import io
import math
import re
import warnings
from collections.abc import Callable
from pathlib import Path

import matplotlib
from markupsafe import escape
from matplotlib import font_manager
from matplotlib.figure import Figure

from ..files import replace_atomically


# Role -> colour on white, colour on dark. Of the colour-blind safe palette of Okabe and Ito, vermilion is kept for
# silenced tokens, and the others, darkened until thin lines and small text can be read, stand for runs.
COLORS = {
    "ink": ("#1f2328", "#e6e9ee"),
    "muted": ("#5b6570", "#9aa5b1"),
    "grid": ("#e3e7ec", "#2b323b"),
    "silenced": ("#c2410c", "#ff8a4c"),
    "run-0": ("#0072b2", "#56b4e9"),
    "run-1": ("#00805d", "#3cc79a"),
    "run-2": ("#9c4f86", "#e39bcb"),
    "run-3": ("#8a6a00", "#e6b325"),
    "run-4": ("#4b5bb5", "#9aa9ff"),
    "run-5": ("#6b4f3a", "#cfae92"),
}
INK, MUTED, GRID, SILENCED = (COLORS[role][0] for role in ("ink", "muted", "grid", "silenced"))
RUNS = [light for role, (light, _) in COLORS.items() if role.startswith("run-")]
FAMILIES = ("Helvetica Neue", "Arial", "Liberation Sans", "DejaVu Sans")
MONOSPACE = ("Menlo", "Consolas", "Liberation Mono", "DejaVu Sans Mono")
# For characters that those lack, where one is installed
WIDER_FAMILIES = ["Noto Sans CJK SC", "WenQuanYi Zen Hei", "PingFang SC", "Microsoft YaHei", "Arial Unicode MS"]
DPI = 200


@functools.cache
def find_families(first: tuple[str, ...]) -> list[str]:
    """These fonts and the wider ones, as far as they are installed."""
    known = set(font_manager.get_font_names())
    return [family for family in (*first, *WIDER_FAMILIES) if family in known]


@functools.cache
def _settings() -> dict:
    return {
        "font.family": find_families(FAMILIES),
        "font.size": 9,
        "text.color": INK,
        "text.parse_math": False,  # tokens and names may hold dollar signs
        "axes.edgecolor": MUTED,
        "axes.labelcolor": MUTED,
        "axes.titlecolor": INK,
        "axes.titlesize": 10,
        "axes.titlelocation": "left",
        "axes.labelsize": 8.5,
        "axes.linewidth": 0.7,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "axes.axisbelow": True,
        "axes.facecolor": "none",
        "grid.color": GRID,
        "grid.linewidth": 0.7,
        "xtick.color": MUTED,
        "ytick.color": MUTED,
        "xtick.labelsize": 8.5,
        "ytick.labelsize": 8.5,
        "legend.fontsize": 8.5,
        "legend.frameon": False,
        "lines.linewidth": 1.5,
        "figure.facecolor": "white",
        "svg.fonttype": "none",
    }


def styled(function: Callable) -> Callable:
    """Decorator for functions that draw or save figures."""

    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        with matplotlib.rc_context(_settings()), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Glyph .* missing from font")  # in a PNG; the viewer's fonts draw an SVG
            return function(*args, **kwargs)

    return wrapper


def color_of_run(index: int) -> str:
    return RUNS[index % len(RUNS)]


def format_power(value: float, position: int | None = None) -> str:
    """
    Label of a tick on a logarithmic axis; matplotlib's own needs the mathematical notation that is switched off here.

    Example:

    ```python
    >>> format_power(1e-7), format_power(0.01)
    ('10⁻⁷', '0.01')
    ```
    """
    exponent = round(math.log10(value))
    if -3 < exponent < 4:
        return f"{value:g}"
    return "10" + str(exponent).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))


@styled
def save(figure: Figure, path: Path) -> None:
    """Save a figure atomically, in the format of the path's ending."""
    metadata = {"Date": None} if path.suffix == ".svg" else None
    with replace_atomically(path) as unfinished:
        figure.savefig(unfinished, format=path.suffix[1:], dpi=DPI, metadata=metadata)


@styled
def to_inline_svg(figure: Figure, name: str, description: str) -> str:
    """
    A figure as an `<svg>` element of the page, in the page's colours, with `description` for screen readers. Artists with
    the gid `"run-0"`, `"run-1"` ... carry that class. The name has to be unique in the page.
    """
    buffer = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": name}):
        figure.savefig(buffer, format="svg", dpi=DPI, transparent=True, metadata={"Date": None})
    svg = re.sub(r"<!--.*?-->|<metadata>.*?</metadata>|<style.*?</style>", "", buffer.getvalue(), flags=re.DOTALL)
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r'<g id="(run-\d+)"', r'<g class="\1"', svg)
    svg = re.sub(r'<g id="[^"]*"', "<g", svg)  # matplotlib's ids repeat from figure to figure
    svg = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", svg, count=1))
    for role, (light, _) in COLORS.items():
        svg = svg.replace(light, f"var(--{role})")
    return svg.replace("<svg", f'<svg role="img" aria-label="{escape(description)}"', 1)
