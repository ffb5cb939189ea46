"""The report as one HTML file that needs no network: figures as inline SVG, data as JSON, one script."""

import base64
import hashlib
import json
from pathlib import Path

import jinja2
import pyarrow.compute as pc
from markupsafe import Markup
from matplotlib.figure import Figure

from .... import __version__
from ...text import show_text
from ..curves import PANELS, draw_panel, read_lines
from ..load import Run
from ..quadrants import COLUMNS, TITLES, average_quadrants, format_quadrants
from ..scatter import TokenSample, draw_gradient_norms, draw_scatter
from ..style import COLORS, styled, to_inline_svg
from ..tables import find_spurious, list_completions, list_spurious, round_number
from ..word_cloud import CLOUDS, draw_cloud


HERE = Path(__file__).parent


def render_page(runs: list[Run], samples: list[TokenSample], counts: list[dict], has_curves: bool) -> str:
    """HTML in which every text of a model, a data set or a folder's name is escaped. `counts` are of the word clouds."""
    rows, num_spurious = list_spurious(runs)
    unsilenced = [run.name for run in runs if run.tokens.num_rows and not find_spurious(run)[1]]
    panels = [_render_panel(panel, runs) for panel in PANELS] if has_curves else []
    scatters = [
        _render_scatter(index, run, sample) for index, (run, sample) in enumerate(zip(runs, samples, strict=True))
    ]
    data = {
        "runs": [run.name for run in runs],
        "panels": [data for _, data in panels],
        "scatters": [data for _, data in scatters if data],
        "spurious": rows,
        "completions": list_completions(runs),
    }
    script = (HERE / "page.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    template = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True).from_string(
        (HERE / "page.html").read_text(encoding="utf-8")
    )
    return template.render(
        csp=f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'",
        script=Markup(script),
        style=Markup((HERE / "page.css").read_text(encoding="utf-8")),
        light=Markup("".join(f"--{role}:{light};" for role, (light, _) in COLORS.items())),
        dark=Markup("".join(f"--{role}:{dark};" for role, (_, dark) in COLORS.items())),
        data=Markup(dump_json(data)),
        version=__version__,
        runs=runs,
        key_numbers=[list_key_numbers(run) for run in runs],
        settings=[list_settings(run) for run in runs],
        missing=[describe_missing(run) for run in runs],
        panels=[(panel.name, Markup(svg)) for panel, (svg, _) in zip(PANELS, panels, strict=False)],
        samples=samples,
        scatters=[Markup(svg) for svg, _ in scatters],
        gradient_norms=Markup(_render_gradient_norms(runs)),
        quadrants=[format_quadrants(average_quadrants(run)) for run in runs],
        columns=list(COLUMNS.values()),
        spurious=TITLES["low_prob_low_entropy"],
        word_clouds=[[Markup(svg) for svg in _render_word_clouds(index, count)] for index, count in enumerate(counts)],
        rows=rows,
        num_spurious=num_spurious,
        unsilenced=unsilenced,
        edited=any(row[-1] is not None for row in rows),
        has_tokens=any(run.tokens.num_rows for run in runs),
        num_completions=len(data["completions"]),
    )


def dump_json(data) -> str:
    r"""
    JSON that can stand inside a `<script>` element, whatever text it holds.

    Example:

    ```python
    >>> dump_json(["</script>"])
    '["\\u003c/script\\u003e"]'
    ```
    """
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)  # not ASCII: \uXXXX, U+2028 included
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def list_key_numbers(run: Run) -> list[tuple[str, str, str]]:
    """Name, value and explanation of the numbers at the top of the page that were logged."""
    numbers = []
    if len(run.metrics) > 1:
        numbers.append(("Steps", f"{run.metrics.index.max():,}", "optimizer steps"))
    share = run.series("s2t/silenced_share")
    if len(share):
        numbers.append(("Silenced share", f"{100 * share.mean():.2g} %", "of all tokens"))
    if run.tokens.num_rows:
        numbers.append(("Silenced tokens", f"{pc.sum(run.tokens['silenced']).as_py() or 0:,}", "in the token log"))
    for name, keys, scale in (
        ("Reward", ["reward"], 1),
        ("Held-out accuracy, %", ["heldout/greedy_accuracy"], 100),
        ("Entropy, nats", ["s2t/entropy", "entropy"], 1),
    ):
        values = run.series(*keys) * scale
        size = 10 if len(values) >= 40 else 1
        first, last = values.iloc[:size].mean(), values.iloc[-size:].mean()
        if len(values) > 1:
            detail = "first → last" + (f", means of {size}" if size > 1 else "")
            numbers.append((name, f"{first:.3g} → {last:.3g}".replace("-", "−"), detail))
        elif len(values) == 1:
            numbers.append((name, f"{last:.3g}".replace("-", "−"), "mean"))
    return numbers


def list_settings(run: Run) -> str:
    settings = dict(run.settings)
    if Path(settings.get("model", "")).is_absolute():
        settings["model"] = Path(settings["model"]).name  # pages are shared: no path of this machine
    names = {"model": "model", "prob_threshold": "τp", "entropy_quantile": "q", "selection": "selection"}
    return " · ".join(f"{name} {show_text(settings[key])}" for key, name in names.items() if settings.get(key))


def describe_missing(run: Run) -> list[str]:
    """A sentence for each part of the report that this run's folder holds nothing for."""
    missing = []
    if not run.tokens.num_rows:
        missing.append(
            "No token log: train with STAPOTrainer, or analyse saved completions with `stapo score`, for the scatter, "
            "the word clouds and the silenced tokens."
        )
    elif not run.completions.num_rows:
        missing.append("No completions in the token log, so the viewer shows none of this run.")
    if run.metrics.empty:
        missing.append(
            "No metrics.jsonl: it is written by `stapo train`, or by the callback stapo_trl.observe.files.MetricsFile."
        )
    elif average_quadrants(run).empty:
        missing.append("No gradient norms by quadrant: STAPOTrainer logs them on some steps, `stapo score` always.")
    return missing


@styled
def _render_panel(panel, runs: list[Run]) -> tuple[str, dict]:
    figure = Figure(figsize=(4.1, 2.75))
    axes = figure.add_axes((0.105, 0.165, 0.885, 0.735))  # the same in each panel, so that the panels line up
    draw_panel(axes, panel, runs)
    svg = to_inline_svg(figure, panel.name, f"{panel.title}, {panel.unit}, over optimizer steps")
    series = [
        {
            "run": index,
            "label": label,
            "steps": [int(step) for step in values.index],
            "values": [round_number(value) for value in values],
        }
        for index, run in enumerate(runs)
        for label, values in read_lines(panel, run).items()
    ]
    return svg, {"name": panel.name, "unit": "%" if panel.unit == "%" else "", "frame": _frame(axes), "series": series}


@styled
def _render_scatter(index: int, run: Run, sample: TokenSample) -> tuple[str, dict | None]:
    if sample.points.empty:
        return "", None
    figure = Figure(figsize=(4.6, 3.6), layout="constrained")
    axes = figure.subplots()
    draw_scatter(axes, sample, run.name)
    svg = to_inline_svg(figure, f"scatter-{index}", f"Tokens of {run.name} over probability and entropy")
    points = sample.points
    data = {
        "name": f"scatter-{index}",
        "frame": _frame(axes),
        "prob": [round_number(value) for value in points["prob"]],
        "entropy": [round_number(value) for value in points["entropy"]],
        "step": [int(step) for step in points["step"]],
        "kind": [2 if s else 1 if c else 0 for s, c in zip(points["silenced"], points["candidate"], strict=True)],
        "token": list(points["token"]),
    }
    return svg, data


def _frame(axes) -> dict:
    """Where the axes lie in the SVG (from its top left, in its units), and their limits, for hovering."""
    figure = axes.figure
    left, bottom, right, top = axes.get_window_extent().transformed(figure.dpi_scale_trans.inverted()).extents * 72
    height = figure.get_figheight() * 72
    return {
        "box": [round(float(value), 2) for value in (left, height - top, right, height - bottom)],
        "x": [float(value) for value in axes.get_xlim()],
        "y": [float(value) for value in axes.get_ylim()],
        "scale": [axes.get_xscale(), axes.get_yscale()],
    }


def _render_gradient_norms(runs: list[Run]) -> str:
    if all(average_quadrants(run).empty for run in runs):
        return ""
    return to_inline_svg(draw_gradient_norms(runs), "gradient-norms", "Mean gradient norm of a token by quadrant")


def _render_word_clouds(index: int, counts: dict) -> list[str]:
    if not counts["silenced"] and not counts["kept"]:
        return []
    svgs = []
    for name, (title, color) in CLOUDS.items():
        most = sorted(counts[name].items(), key=lambda item: -item[1])[:20]
        description = f"{title}: " + ", ".join(f"{token} {count}" for token, count in most)
        svgs.append(to_inline_svg(draw_cloud(counts[name], color, title), f"words-{index}-{name}", description))
    return svgs
