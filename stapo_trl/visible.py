"""Text of tokens for human eyes: white space, control and formatting characters become signs that can be seen."""

import unicodedata


SIGNS = {chr(code): chr(0x2400 + code) for code in range(32)} | {"\n": "↵", "\t": "⇥", "\x7f": "␡"}
INVISIBLE = {"Cc", "Cf", "Cs", "Co", "Cn", "Zs", "Zl", "Zp"}  # categories of Unicode


def show_text(text: str) -> str:
    r"""
    A text in which nothing is invisible but the plain space.

    Args:
        text (`str`):
            Any text.

    Returns:
        `str`: without control, formatting (such as right-to-left marks), private and unassigned characters.

    Example:

    ```python
    >>> show_text("a\n\tb\x00 \u202e")
    'a↵⇥b␀ ⟨U+202E⟩'
    ```
    """
    return "".join(map(_show, text))


def show_token(token: str) -> str:
    """
    A token as it is, with its spaces visible too.

    Args:
        token (`str`):
            Text of one token.

    Returns:
        `str`: never empty.

    Example:

    ```python
    >>> show_token(" let"), show_token("")
    ('␣let', '⟨empty⟩')
    ```
    """
    shown = show_text(token).replace(" ", "␣") or "⟨empty⟩"
    # A combining mark without a letter would sit on whatever comes before it
    return "◌" + shown if unicodedata.combining(shown[0]) else shown


def _show(character: str) -> str:
    if character in SIGNS:
        return SIGNS[character]
    if character != " " and unicodedata.category(character) in INVISIBLE:
        return f"⟨U+{ord(character):04X}⟩"
    return character
