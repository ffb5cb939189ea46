"""Which LaTeX a Unicode symbol stands for, and which commands are other spellings of one."""

import re
import unicodedata


SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁼⁽⁾ⁿⁱ", "0123456789+-=()ni")
SUBSCRIPTS = str.maketrans("₀₁₂₃₄₅₆₇₈₉₊₋₌₍₎", "0123456789+-=()")
# LaTeX, and the characters that stand for it
_CHARACTERS = {
    r"\infty ": "∞",
    r"\sqrt ": "√",
    r"\sqrt[3] ": "∛",
    r"\sqrt[4] ": "∜",
    r"\times ": "×✕",
    r"\cdot ": "∗·⋅∙•",
    r"\div ": "÷",
    r"\pm ": "±",
    r"\mp ": "∓",
    r"\le ": "≤⩽",
    r"\ge ": "≥⩾",
    r"\ne ": "≠",
    r"\approx ": "≈",
    r"\in ": "∈",
    r"\notin ": "∉",
    r"\cup ": "∪",
    r"\cap ": "∩",
    r"\setminus ": "∖",
    r"\subset ": "⊂",
    r"\emptyset ": "∅ø",
    r"\forall ": "∀",
    r"\lor ": "∨",
    r"\land ": "∧",
    r"\mathbb{R}": "ℝ",
    r"\mathbb{Z}": "ℤ",
    r"\mathbb{N}": "ℕ",
    r"\mathbb{Q}": "ℚ",
    r"\mathbb{C}": "ℂ",
    r"\angle ": "∠",
    r"\triangle ": "△",
    r"^\circ ": "°º˚",
    "-": "−–—‐‑",
    "/": "⁄∕",
    "'": "′’‘",
    r"\ldots ": "…",
    r"\lfloor ": "⌊",
    r"\rfloor ": "⌋",
    r"\lceil ": "⌈",
    r"\rceil ": "⌉",
    r"\sum ": "∑",
    r"\prod ": "∏",
    r"\int ": "∫",
    ",": "、",
    ".": "。",
    '"': "“”",
}
SYMBOLS = {char: latex for latex, chars in _CHARACTERS.items() for char in chars}
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
# A command, and its other spellings
_SPELLINGS = {
    "frac": "dfrac tfrac cfrac",
    "binom": "dbinom tbinom",
    "le": "leq leqslant",
    "ge": "geq geqslant",
    "<": "lt",
    ">": "gt",
    "ne": "neq",
    "emptyset": "varnothing",
    "rightarrow": "to",
    "ldots": "dots cdots dotsc dotsb",
    "{": "lbrace",
    "}": "rbrace",
    "[": "lbrack",
    "]": "rbrack",
    "lor": "vee",
    "land": "wedge",
    "tan": "tg",
    "cot": "ctg",
    "arctan": "arctg",
    "setminus": "backslash",
    "cdot": "ast",
    "i": "imath",
    r"^\circ": "degree textdegree",
    "infty": "infin",
    "£": "pounds",
    "€": "euro",
    "text": "mathrm mathbf mathsf mathtt mathit mathnormal textbf textit textrm textsf texttt textnormal emph "
    "mbox hbox operatorname boldsymbol bm bf rm underline boxed fbox ensuremath uline mathord",
}
ALIASES = {alias: command for command, aliases in _SPELLINGS.items() for alias in aliases.split()}
SPACES = re.compile("[\u00a0\u1680\u2000-\u200a\u202f\u205f\u3000\\s]+")
INVISIBLE = re.compile("[\u200b-\u200f\u2060-\u2064\ufeff\u00ad\u202a-\u202e\x00-\x08\x0e-\x1f]")


def from_unicode(text: str) -> str:
    """The text in ASCII, with symbols as LaTeX commands and the digits of every script as 0-9."""
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
