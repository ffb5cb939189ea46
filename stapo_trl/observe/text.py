"""Text of tokens for human eyes: white space, control and formatting characters become visible signs."""

import unicodedata
from collections.abc import Sequence


SIGNS = {chr(code): chr(0x2400 + code) for code in range(32)} | {"\n": "↵", "\t": "⇥", "\x7f": "␡"}
LONGEST = 80  # characters of a token that are shown: only runs of one character are longer in any vocabulary
INVISIBLE = {"Cc", "Cf", "Cs", "Co", "Cn", "Zs", "Zl", "Zp"}  # categories of Unicode


def show_text(text: str) -> str:
    r"""
    A text in which nothing is invisible but the plain space.

    Example:

    ```python
    >>> show_text("a\n\tb\x00 \u202e")
    'a↵⇥b␀ ⟨U+202E⟩'
    ```
    """
    return "".join(map(_show, text))


def show_token(token: str) -> str:
    """
    A token with its spaces visible too: never empty, and cut where it is longer than any real token.

    Example:

    ```python
    >>> show_token(" let"), show_token("")
    ('␣let', '⟨empty⟩')
    ```
    """
    shown = show_text(shorten(token)).replace(" ", "␣") or "⟨empty⟩"
    # A combining mark without a letter would sit on whatever comes before it
    return "◌" + shown if unicodedata.combining(shown[0]) else shown


def shorten(token: str) -> str:
    """At most `LONGEST` characters of a token: a page would hang over more."""
    return token if len(token) <= LONGEST else token[:LONGEST] + "…"


def show_alternatives(tokens: Sequence[str | None] | None, probs: Sequence[float | None] | None) -> str:
    """
    The most probable tokens of a position, best first, as the paper shows them; empty if they are unknown.

    Example:

    ```python
    >>> show_alternatives(["1", " 2"], [0.9995, 0.0001])
    '1(99.95%) | ␣2(0.01%)'
    ```
    """
    pairs = zip(tokens or [], probs or [], strict=False)
    return " | ".join(f"{show_token(token or '')}({100 * (prob or 0.0):.2f}%)" for token, prob in pairs)


def _show(character: str) -> str:
    if character in SIGNS:
        return SIGNS[character]
    if character != " " and unicodedata.category(character) in INVISIBLE:
        return f"⟨U+{ord(character):04X}⟩"
    return character
