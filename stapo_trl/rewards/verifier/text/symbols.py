"""Which LaTeX a Unicode symbol stands for, and which commands are spellings of one."""

import re
import unicodedata


SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁼⁽⁾ⁿⁱ", "0123456789+-=()ni")
SUBSCRIPTS = str.maketrans("₀₁₂₃₄₅₆₇₈₉₊₋₌₍₎", "0123456789+-=()")
SYMBOLS = {
    "∞": r"\infty ",
    "√": r"\sqrt ",
    "∛": r"\sqrt[3] ",
    "∜": r"\sqrt[4] ",
    "×": r"\times ",
    "✕": r"\times ",
    "∗": r"\cdot ",
    "·": r"\cdot ",
    "⋅": r"\cdot ",
    "∙": r"\cdot ",
    "•": r"\cdot ",
    "÷": r"\div ",
    "±": r"\pm ",
    "∓": r"\mp ",
    "≤": r"\le ",
    "⩽": r"\le ",
    "≥": r"\ge ",
    "⩾": r"\ge ",
    "≠": r"\ne ",
    "≈": r"\approx ",
    "∈": r"\in ",
    "∉": r"\notin ",
    "∪": r"\cup ",
    "∩": r"\cap ",
    "∖": r"\setminus ",
    "⊂": r"\subset ",
    "∅": r"\emptyset ",
    "ø": r"\emptyset ",
    "∀": r"\forall ",
    "∨": r"\lor ",
    "∧": r"\land ",
    "ℝ": r"\mathbb{R}",
    "ℤ": r"\mathbb{Z}",
    "ℕ": r"\mathbb{N}",
    "ℚ": r"\mathbb{Q}",
    "ℂ": r"\mathbb{C}",
    "∠": r"\angle ",
    "△": r"\triangle ",
    "°": r"^\circ ",
    "º": r"^\circ ",
    "˚": r"^\circ ",
    "−": "-",
    "–": "-",
    "—": "-",
    "‐": "-",
    "‑": "-",
    "⁄": "/",
    "∕": "/",
    "′": "'",
    "…": r"\ldots ",
    "⌊": r"\lfloor ",
    "⌋": r"\rfloor ",
    "⌈": r"\lceil ",
    "⌉": r"\rceil ",
    "∑": r"\sum ",
    "∏": r"\prod ",
    "∫": r"\int ",
    "、": ",",
    "。": ".",
    "“": '"',
    "”": '"',
    "’": "'",
    "‘": "'",
}
SYMBOLS |= {
    chr(point): "\\" + name + " "
    for point, name in zip(
        range(0x3B1, 0x3CA),
        "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi omicron pi rho sigma sigma tau "
        "upsilon phi chi psi omega".split(),
        strict=True,
    )
}
SYMBOLS |= {
    char: "\\" + name + " "
    for char, name in zip("ΓΔΘΛΞΠΣΦΨΩ", "Gamma Delta Theta Lambda Xi Pi Sigma Phi Psi Omega".split(), strict=True)
}
SYMBOL_TABLE = str.maketrans(SYMBOLS)
ALIASES = {
    "dfrac": "frac",
    "tfrac": "frac",
    "cfrac": "frac",
    "dbinom": "binom",
    "tbinom": "binom",
    "leq": "le",
    "leqslant": "le",
    "geq": "ge",
    "geqslant": "ge",
    "lt": "<",
    "gt": ">",
    "neq": "ne",
    "varnothing": "emptyset",
    "to": "rightarrow",
    "dots": "ldots",
    "cdots": "ldots",
    "dotsc": "ldots",
    "dotsb": "ldots",
    "lbrace": "{",
    "rbrace": "}",
    "lbrack": "[",
    "rbrack": "]",
    "vee": "lor",
    "wedge": "land",
    "tg": "tan",
    "ctg": "cot",
    "arctg": "arctan",
    "backslash": "setminus",
    "ast": "cdot",
    "imath": "i",
    "degree": "^\\circ",
    "textdegree": "^\\circ",
    "infin": "infty",
    "pounds": "£",
    "euro": "€",
    "mathrm": "text",
    "mathbf": "text",
    "mathsf": "text",
    "mathtt": "text",
    "mathit": "text",
    "mathnormal": "text",
    "textbf": "text",
    "textit": "text",
    "textrm": "text",
    "textsf": "text",
    "texttt": "text",
    "textnormal": "text",
    "emph": "text",
    "mbox": "text",
    "hbox": "text",
    "operatorname": "text",
    "boldsymbol": "text",
    "bm": "text",
    "bf": "text",
    "rm": "text",
    "underline": "text",
    "boxed": "text",
    "fbox": "text",
    "ensuremath": "text",
    "uline": "text",
    "mathord": "text",
}
SPACES = re.compile("[\u00a0\u1680\u2000-\u200a\u202f\u205f\u3000\\s]+")
INVISIBLE = re.compile("[\u200b-\u200f\u2060-\u2064\ufeff\u00ad\u202a-\u202e\x00-\x08\x0e-\x1f]")


def from_unicode(text: str) -> str:
    r"""The text in ASCII, its symbols as LaTeX commands, digits of every script as 0-9.

    Example:
    ```python
    >>> from_unicode("2√3 ≤ ½π²")
    '2\\sqrt 3 \\le  \\frac{1}{2}\\pi ^{2}'
    ```
    """
    if text.isascii():
        return text
    text = INVISIBLE.sub("", text)
    text = re.sub("[⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁼⁽⁾ⁿⁱ]+", lambda m: "^{" + m[0].translate(SUPERSCRIPTS) + "}", text)
    text = re.sub("[₀₁₂₃₄₅₆₇₈₉₊₋₌₍₎]+", lambda m: "_{" + m[0].translate(SUBSCRIPTS) + "}", text)
    pieces = []
    for char in SPACES.sub(" ", text.translate(SYMBOL_TABLE)):
        if char.isascii():
            pieces.append(char)
        elif unicodedata.category(char) == "Nd":
            pieces.append(str(unicodedata.decimal(char)))
        else:
            form = unicodedata.normalize("NFKC", char)
            if "⁄" in form:  # ½ and its relatives; the braces keep 3½ a mixed number
                top, bottom = form.split("⁄")
                form = rf"\frac{{{top}}}{{{bottom}}}"
            pieces.append(form.translate(SYMBOL_TABLE))
    return "".join(pieces)
