"""Word clouds of silenced tokens and of improbable tokens that were kept."""

import functools

import pyarrow.compute as pc
from matplotlib import font_manager
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.patches import PathPatch
from matplotlib.textpath import TextPath
from PIL import ImageFont
from wordcloud import WordCloud

from ..text import show_token
from .load import Run
from .style import INK, MUTED, SILENCED, WIDER_FAMILIES, styled


WIDTH, HEIGHT, MAX_TOKENS = 460, 240, 80


def count_tokens(run: Run) -> dict[str, dict[str, int]]:
    """How often each token, as it is shown, was `"silenced"`, and how often it was a candidate and `"kept"`."""
    silenced = pc.fill_null(run.tokens["silenced"], False)
    candidate = pc.fill_null(run.tokens["candidate"], False)
    counts = {}
    for name, chosen in (("silenced", silenced), ("kept", pc.and_(candidate, pc.invert(silenced)))):
        counted = run.tokens["token"].filter(chosen).fill_null("").value_counts().to_pylist()
        shown = counts.setdefault(name, {})
        for entry in counted:
            token = show_token(entry["values"])
            shown[token] = shown.get(token, 0) + entry["counts"]
    return counts


@functools.cache
def _find_font(characters: frozenset) -> str:
    """File of the installed font that has most of these characters."""
    best = font_manager.findfont("DejaVu Sans")
    missing = _find_missing(characters, best)
    installed = {font.name: font.fname for font in font_manager.fontManager.ttflist} if missing else {}
    for path in (installed[family] for family in WIDER_FAMILIES if family in installed):
        if len(_find_missing(characters, path)) < len(missing):
            best, missing = path, _find_missing(characters, path)
    return best


def _find_missing(characters: frozenset, path: str) -> set[str]:
    font = font_manager.get_font(path)
    return {character for character in characters if not font.get_char_index(ord(character))}


@styled
def draw_cloud(counts: dict[str, int], color: str, title: str) -> Figure:
    """A word cloud, or a sentence in its place if there is no token. Characters without a font become `⟨U+XXXX⟩`."""
    height, title_height = HEIGHT if counts else 40, 26
    figure = Figure(figsize=(WIDTH / 72, (height + title_height) / 72))
    axes = figure.add_axes((0, 0, 1, height / (height + title_height)))
    axes.set_axis_off()
    axes.set_xlim(0, WIDTH)
    axes.set_ylim(0, height)
    figure.text(0, 1 - 4 / (height + title_height), title, va="top", fontsize=10, color=INK)
    if not counts:
        axes.text(0, height / 2, "No such token in the log.", ha="left", va="center", color=MUTED)
        return figure
    path = _find_font(frozenset("".join(counts)))
    missing = _find_missing(frozenset("".join(counts)), path)
    written = {
        "".join(f"⟨U+{ord(character):04X}⟩" if character in missing else character for character in token): count
        for token, count in counts.items()
    }
    cloud = WordCloud(
        width=WIDTH,
        height=HEIGHT,
        font_path=path,
        max_words=MAX_TOKENS,
        prefer_horizontal=1.0,
        max_font_size=76,
        margin=5,
        random_state=0,
    ).generate_from_frequencies(written)
    for (token, _), size, (top, left), _, _ in cloud.layout_:
        # wordcloud places the corner of the ink, matplotlib the start of the baseline
        ink_left, ink_top, _, _ = ImageFont.truetype(path, size).getbbox(token, anchor="ls")
        start = (left - ink_left, HEIGHT - top + ink_top)
        # Outlines, not text: whatever fonts the viewer has, the layout holds
        outline = TextPath(start, token, size=size, prop=FontProperties(fname=path))
        axes.add_patch(PathPatch(outline, color=color, linewidth=0))
    return figure


CLOUDS = {
    "silenced": ("Silenced tokens", SILENCED),
    "kept": ("Improbable tokens of correct responses that were kept", INK),
}
