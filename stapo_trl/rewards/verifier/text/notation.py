"""Rewrites an answer so that equal notations become equal text. Nothing is executed or evaluated."""

import re

from .symbols import ALIASES, from_unicode


# Names that code and plain text write without a backslash
FUNCTIONS = "arcsin arccos arctan sinh cosh tanh sin cos tan cot sec csc log ln exp lg gcd lcm min max det".split()
DROPPED = re.compile(
    r"\\[,;:!>]|\\(?:displaystyle|textstyle|scriptstyle|limits|nolimits|left|right|middle|bigg?[lrm]?|Bigg?[lrm]?|hline|"
    r"normalsize|large|Large|small|boldmath|centering|thinspace|space|hfill|strut|"
    r"(?:hspace|vspace|phantom|label|tag)\*?\{[^{}]*\})(?![A-Za-z])|\\q?quad"
)
CALLS = {
    r"\sqrt(": (r"\sqrt{", "}"),
    r"\sqrt[3](": (r"\sqrt[3]{", "}"),
    "cbrt(": (r"\sqrt[3]{", "}"),
    r"\exp(": ("e^{", "}"),
    "abs(": ("|", "|"),
    "floor(": (r"\lfloor ", r"\rfloor "),
    "ceil(": (r"\lceil ", r"\rceil "),
    "^(": ("^{", "}"),
}
ENVIRONMENT = re.compile(
    r"\\(begin|end)\{(?:aligned|align\*?|gathered|gather\*?|split|cases|equation\*?|eqnarray\*?)\}"
)
# The condition in a row of cases; `x &= 1` is no case
CASE = re.compile(
    r"\s*,?\s*&(?!\s*(?:=|<|>|\\[lgn]e(?![A-Za-z])))\s*,?\s*(?:\\text\s*\{,?\s*(?:if|for|when|where|on)?\s*\})?"
)
COMMAND = re.compile(r"\\([A-Za-z]+)\*?")
GROUPED = re.compile(r"(?<![\d.,_^])([1-9]\d{0,2}(?:,\d{3})+)(?!\d|,\d|\.\d*,)")
CODE = re.compile(r"(?<![A-Za-z\\])(?:np|math|numpy|sympy|sp)\.(?=[a-z])")
NAMED = re.compile(r"(?<![A-Za-z\\])(" + "|".join(FUNCTIONS) + r")(?=[\s(^_{\\]|\d)")
# A single upright letter after a number is a unit; the mark \x01 keeps it from being unwrapped
LETTER_UNIT = re.compile(r"(?<=[\d)}/])(?:\s|\\ |~)*\\text\{\s*~?([mgshLlJNWVAKCF])\s*\}")
UNIT_FRACTION = re.compile(
    r"(?<=[\d)}])(?:\s|\\ |~)*\\frac\s*\{\s*\\text\{([A-Za-z]+)\}\s*\}\s*\{\s*\\text\{([A-Za-z]+)\}(?:(\^)\{?(\d)\}?)?\s*\}"
)
# \text{The answer is } 42, \text{Total: } 42
LABEL = re.compile(r"^\s*(?:\\text\{[^{}]*(?:\bis|:|=)\s*\}|[Aa]nswer\s*:)(?=.)")
# ]0,1[ in place of (0,1)
FRENCH = re.compile(r"(\[|(?<![^=np])\](?!\{))([^\[\],()]+,[^\[\],()]+)([\[\]])")
# 5 million, 5\text{ million people}
COUNT_WORDS = {
    "dozen": r"\cdot 12 ",
    "hundred": r"\cdot 10^2 ",
    "thousand": r"\cdot 10^3 ",
    "million": r"\cdot 10^6 ",
    "billion": r"\cdot 10^9 ",
    "trillion": r"\cdot 10^{12} ",
}
COUNTED = re.compile(r"(?<=\d)\s*(\\text\{)?\s*(" + "|".join(COUNT_WORDS) + r")(?![A-Za-z])\s*", re.IGNORECASE)
WORD_JOIN = re.compile(
    r"\\text\{\s*,?\s*(?:and|or|和|或|与)\s*\}|(?<=[\s\d)}\]$.,])(?:and|or|和|或|与)(?=[\s\d({\[$\\-])"
)


def _without_dollars(text: str) -> str:
    """Remove maths delimiters but keep money: an escaped dollar, or a single one before a number."""
    text = re.sub(r"\\\\\[-?[\d.]*[a-z]*\]", r"\\\\", text)
    text = re.sub(r"(?<!\\)\\[()\[\]]", " ", text)
    text = text.replace(r"\$", "\uffff")
    if text.count("$") == 1:
        text = re.sub(r"\$(?=\s*[\d.])", "\uffff", text)
    return text.replace("$", " ").replace("\uffff", r"\$")


def _infix(match: re.Match) -> str:
    r"""{10 \choose 3} is \binom{10}{3}, {1 \over 2} is \frac{1}{2}."""
    command = {"choose": "binom", "over": "frac"}[match[2]]
    return rf"\{command}{{{match[1].strip()}}}{{{match[3].strip()}}}"


def _commands(text: str) -> str:
    def rename(match: re.Match) -> str:
        new = ALIASES.get(match[1])
        if new is None:
            return match[0]
        return ("\\" + new if new[:1].isalpha() or new in ("{", "}") else new) + " "

    text = text.replace(r"\textcolor", r"\color")
    text = re.sub(r"\\not\s*(?:=|\\equal\b)", r"\\ne ", text)
    text = re.sub(r"\{([^{}]*)\\(choose|over)(?![A-Za-z])([^{}]*)\}", _infix, text)
    text = re.sub(r"\\color\s*\{[^{}]*\}", "", text)
    text = re.sub(r"\\(?:left|right)\s*\.", "", text)
    text = DROPPED.sub(" ", text)
    text = COMMAND.sub(rename, text)
    text = re.sub(r"\{\s*\\text\s+(?!\{)([^{}]*)\}", r"\\text{\1}", text)  # {\bf 5}
    text = re.sub(r"\\text\s+\{", r"\\text{", text)
    text = re.sub(r"\\text (?=\w)(\w)", r"\1", text)
    text = re.sub(
        r"[\[(]\s*\\begin\s*\{array\}\s*\{[clr| ]*\}(.*?)\\end\s*\{array\}\s*[\])]",
        r"\\begin{pmatrix}\1\\end{pmatrix}",
        text,
    )
    text = CASE.sub(r"\\if ", text) if r"{cases}" in text else text
    if ENVIRONMENT.search(text):
        text = ENVIRONMENT.sub(" ", text).replace("&", "").replace(r"\\", ",")
    return text


def _groups(text: str) -> str:
    """Join grouped digits (10,000; 10 000; 10{,}000), but never inside a tuple, where a comma separates."""
    text = re.sub(r"(?<=\d)\s*\{,\}\s*(?=\d{3}(?!\d))|(?<=\d)\s*,\s*\\!\s*(?=\d{3}(?!\d))", "", text)
    text = re.sub(r"(?<=\d)\{,\}(?=\d)", ".", text)
    text = re.sub(r"(?<=\d)(?:\\[,;:! ]|~)+(?=\d{3}(?!\d))", "", text)
    text = re.sub(r"(?<![\d.,_^])\d{1,3}(?:'\d{3})+(?![\d'])", lambda m: m[0].replace("'", ""), text)

    def join(match: re.Match) -> str:
        before = text[: match.start()].replace(r"\{", "(").replace(r"\}", ")")
        depth = sum(before.count(c) for c in "([") - sum(before.count(c) for c in ")]")
        return match[0] if depth > 0 else match[0].replace(",", "")

    return GROUPED.sub(join, text)


def _numbers(text: str) -> str:
    text = re.sub(r"(?<![\d.,_^])\d{1,3}(?: \d{3})+(?!\d| \d+(?!\d* */))", lambda m: m[0].replace(" ", ""), text)
    text = re.sub(r"(?<![\d.,_^])\d{1,3}(?:\.\d{3}){2,}(?![\d.,])", lambda m: m[0].replace(".", ""), text)
    # 3 1/2 is a mixed number, and so is 3\frac{1}{2}; the brackets keep a sign in front of all of it
    text = re.sub(r"(?<![\d.,_^/}\w])(\d+) +(\d+)\s*/\s*(\d+)(?![\d.])", _mixed, text)
    text = re.sub(r"(?<![\d.,_^/}\w])(\d+)\s*\\frac\s*\{\s*(\d+)\s*\}\s*\{\s*(\d+)\s*\}(?!\s*[\^!])", _mixed, text)
    # 4.5e33, 4.5E+33, 4.5 x 10^33; not 3e^2 or 2e
    text = re.sub(r"(?<![\w.])(\d+\.?\d*|\.\d+)\s*[eE]\s?([+-]?\d+)(?![\w.])", r"\1\\cdot 10^{\2}", text)
    text = re.sub(r"(?<=\d)\s*[xX*]\s*(?=10\s*\^)", r"\\cdot ", text)
    return text


def _mixed(match: re.Match) -> str:
    whole, top, bottom = match.groups()
    if 0 < int(top[:9]) < int(bottom[:9]) and len(top) < 9 and len(bottom) < 9:
        return rf"({whole}+\frac{{{top}}}{{{bottom}}})"
    return match[0]


def _plain_code(text: str) -> str:
    """Read what code writes: exp(16), sqrt(2), pi, 2*x, x**2, <=."""
    text = CODE.sub("", text)
    text = re.sub(r"(?<![A-Za-z\\])a(?=(?:sin|cos|tan) *\()", "arc", text)
    text = re.sub(r"\*\*", "^", text)
    text = re.sub(r"(?<![A-Za-z\\])sqrt(?=\s*[({\d\[])", r"\\sqrt", text)
    text = re.sub(r"(?<![A-Za-z\\])(?:pi|Pi|PI)(?![A-Za-z])", r"\\pi ", text)
    text = re.sub(r"(?<![A-Za-z\\])(?:oo|inf|infinity|Infinity)(?![A-Za-z])", r"\\infty ", text)
    text = NAMED.sub(r"\\\1 ", text)
    text = text.replace("<=", r"\le ").replace(">=", r"\ge ").replace("!=", r"\ne ").replace("==", "=")
    text = text.replace("=<", r"\le ").replace("*", r"\cdot ")
    text = re.sub(r"(^|[\[(,{=<>]|\\(?:in|le|ge)) *\+ *(?=\\infty)", r"\1", text)
    return re.sub(r"\+\s*-", "-", text)


def _arguments(text: str) -> str:
    r"""Give \frac, \sqrt and exponents their braces: \frac43, \sqrt2, 10^10."""
    if r"\frac" in text or r"\binom" in text:
        for _ in range(2):
            text = re.sub(r"\\(frac|binom)\s*(\d|[A-Za-z]|\\[A-Za-z]+)\s*(?=\d|[A-Za-z]|\\|\{)", r"\\\1{\2}", text)
        text = re.sub(
            r"(\\(?:frac|binom)\s*\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\})\s*(\d|[A-Za-z]|\\[A-Za-z]+)", r"\1{\2}", text
        )
    if r"\sqrt" in text:
        text = re.sub(r"\\sqrt\s*(\[[^\]]*\])?\s*(\d+|[A-Za-z]|\\[A-Za-z]+)", r"\\sqrt\1{\2}", text)
    text = re.sub(r"\\(sqrt(?:\[\d+\])?|exp)\s+\(", r"\\\1(", text)
    text = re.sub(r"\\exp\s*\{", "e^{", _calls(text))
    text = re.sub(r"([_^])\s+", r"\1", text)
    text = re.sub(r"\^\{?((?:\\prime ?)+)\}?", lambda m: "'" * m[1].count("prime"), text)
    return re.sub(r"([_^])(-?\d+|-?[A-Za-z])", r"\1{\2}", text)


def _calls(text: str) -> str:
    r"""Read round brackets as what they stand for: \sqrt(1/n), 4^(1/3), exp(16), abs(x)."""
    for call, (opening, closing) in CALLS.items():
        position = text.find(call)
        while position >= 0:
            start = position + len(call)
            if call[0].isalpha() and position and (text[position - 1].isalpha() or text[position - 1] == "\\"):
                position = text.find(call, start)
                continue
            depth = 1
            for end in range(start, len(text)):
                depth += (text[end] == "(") - (text[end] == ")")
                if depth == 0:
                    text = text[:position] + opening + text[start:end] + closing + text[end + 1 :]
                    break
            position = text.find(call, position + len(opening))
    return text


def _texts(text: str) -> str:
    r"""Unwrap \text{...} around what is no text: numbers, single letters, signs."""
    text = COUNTED.sub(lambda m: COUNT_WORDS[m[2].lower()] + (m[1] or ""), text)
    text = LABEL.sub("", WORD_JOIN.sub(" , ", text))
    text = UNIT_FRACTION.sub("\\\\text{\x01\\1/\\2\\3\\4}", text)
    text = LETTER_UNIT.sub("\\\\text{\x01\\1}", text)
    for _ in range(3):
        new = re.sub(
            r"\\text\{\s*((?:[\d\s.,:()+/%^*=-]|\\(?:cdot|frac|times|pi|%)|[{}](?=\d)|(?<=\d)\})*|\(?[A-Za-z]\)?\.?)\s*\}",
            r"\1",
            text,
        )
        if new == text:
            break
        text = new
    text = text.replace("\x01", "")
    whole = re.fullmatch(r"\\text\{([^{}]*)\}", text.strip())
    if whole:
        text = whole[1]
    return text


def _round_brackets(match: re.Match) -> str:
    """]0,1[ is (0,1)."""
    opening, inside, closing = match.groups()
    return ("(" if opening == "]" else opening) + inside + (")" if closing == "[" else closing)


def _spaces(text: str) -> str:
    text = re.sub(r"(?<=\d)\s+(?=\d)", "\0", text)  # 1 2 is not 12
    text = re.sub(r"(?<=[\d\s{])(sq|cu)\.? +(?=[a-z])", lambda m: {"sq": "square ", "cu": "cubic "}[m[1]], text)
    parts = re.split(r"(\\text\{[^{}]*\}|(?:[A-Za-z]{2,}|(?<![A-Za-z\\\\])[Aa])(?: +[A-Za-z']{2,})+)", text)
    for index, part in enumerate(parts):
        if index % 2:
            inner = part[6:-1] if part.startswith(r"\text{") else None
            parts[index] = " ".join(part.split()) if inner is None else r"\text{" + " ".join(inner.split()) + "}"
        else:
            # a space that ends a command has to stay where a letter follows
            parts[index] = re.sub(
                r"(\\[A-Za-z]+)?\s+(?=([A-Za-z])?)", lambda m: (m[1] or "") + (" " if m[1] and m[2] else ""), part
            )
    return "".join(parts).replace("\0", " ")


def normalize(text: str) -> str:
    r"""The answer in one canonical notation: ASCII, no maths delimiters, no style, no spaces that mean nothing.

    Units, percent signs and words stay, since they are compared too.

    Example:
    ```python
    >>> normalize("\\dfrac12"), normalize("１０ ０００"), normalize("$4.5e33$")
    ('\\frac{1}{2}', '10000', '4.5\\cdot10^{33}')
    ```
    """
    text = from_unicode(text).strip()
    while text.endswith(r"\\"):
        text = text[:-2].rstrip()
    text = text.removeprefix("**").removesuffix("**").strip("`").strip()
    if text.isdigit():
        return text.lstrip("0") or "0"
    text = re.sub(r"\.\.\.+|\. \. \.", r"\\ldots ", _without_dollars(text))
    text = _groups(text)
    text = _commands(text)
    text = _texts(text)
    text = _plain_code(text)
    text = re.sub(r"(?<!\\)\\ |~", " ", text).replace(";", ",")
    text = _arguments(text)
    text = _numbers(text)
    text = re.sub(r"(?<![\d}.])\.(?=\d)", "0.", text)
    text = _spaces(text)
    text = re.sub(r"\^\{?\\circ\s*\}?", r"^\\circ ", text).replace(r"^\circ ", r"^\circ ").strip()
    text = text.strip(",;").rstrip(".:!?" if not text.endswith("!") else ".:?").strip()
    return FRENCH.sub(_round_brackets, text.removeprefix("="))
