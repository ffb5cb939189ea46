"""What stands around a number: units, percent, money, bases, times of day, choice letters."""

import re
from collections import Counter
from typing import NamedTuple


UNITS = {
    "km": "kilometer kilometers kilometre kilometres kms",
    "m": "meter meters metre metres",
    "cm": "centimeter centimeters centimetre centimetres cms",
    "mm": "millimeter millimeters millimetre millimetres",
    "nm": "nanometer nanometers nanometre nanometres",
    "in": "inch inches",
    "ft": "foot feet",
    "yd": "yard yards yds",
    "mi": "mile miles",
    "kg": "kilogram kilograms kgs kilo kilos",
    "g": "gram grams gm",
    "mg": "milligram milligrams",
    "lb": "pound pounds lbs",
    "oz": "ounce ounces",
    "ton": "tons tonne tonnes",
    "l": "liter liters litre litres",
    "ml": "milliliter milliliters millilitre millilitres",
    "gal": "gallon gallons",
    "s": "second seconds sec secs",
    "min": "minute minutes mins",
    "h": "hour hours hr hrs",
    "day": "days",
    "week": "weeks",
    "month": "months",
    "year": "years yr yrs",
    "mph": "mi/h",
    "n": "newton newtons",
    "j": "joule joules",
    "kj": "kilojoule kilojoules",
    "ev": "electronvolt electronvolts",
    "w": "watt watts",
    "kw": "kilowatt kilowatts",
    "v": "volt volts",
    "a": "ampere amperes amp amps",
    "hz": "hertz",
    "khz": "kilohertz",
    "mhz": "megahertz",
    "pa": "pascal pascals",
    "mol": "mole moles",
    "k": "kelvin kelvins",
    "deg": "degree degrees degs",
    "rad": "radian radians",
    "%": "percent percentage pct",
    "$": "dollar dollars usd bucks",
    "¢": "cent cents",
    "€": "euro euros eur",
    "£": "gbp",
}
CANONICAL = {word: unit for unit, words in UNITS.items() for word in [unit, *words.split()]}
# Units also without \text, because nobody writes them as a product after a number
BARE = (
    r"USD|EUR|GBP|m/s|km|cm|mm|nm|kg|mg|mL|ml|ft|lbs?|oz|mph|Hz|kHz|MHz|kJ|eV|kW|mol|percent|pct|degrees?|dollars?|cents?|euros?|"
    + "|".join(word for words in UNITS.values() for word in words.split() if len(word) > 3)
)
POWER = r"(?:\^\{?(-?\d)\}?)?"
ONE_TEXT = r"\\text\{[^{}]*(?:\{-?\d\}[^{}]*)*\}(?:\^\{-?\d\})?"
TEXT_UNIT = re.compile(
    r"(?<=[\d})\]A-Za-z!]) ?((?:(?:"
    + ONE_TEXT
    + r"|\\frac\{"
    + ONE_TEXT
    + r"\}\{"
    + ONE_TEXT
    + r"\})(?:/|\\cdot|\.)?)+)$"
)
BARE_UNIT = re.compile(
    r"(?<=[\d})]) ?((?:(?:square|cubic|sq\.?|cu\.?) )?(?:" + BARE + r")(?:(?:/| per )[A-Za-z]+)?)" + POWER + "$"
)
BARE_WORDS = re.compile(r"(?<=\d) ?([A-Za-z]{4,}(?: [A-Za-z]{2,})*)$")
# Words after a number that change it
NO_UNIT = re.compile(
    r"\b(?:squared|cubed|factorial|hal(?:f|ves)|thirds?|quarters?|fourths?|fifths?|tenths?|hundredths?|thousandths?|more|less|"
    r"fewer|or|and|to|plus|minus|times|mod|modulo|negative|not|except|least|most|pairs?|pi|root|base)\b"
)
PREFIX = re.compile(r"(?:square|sq|cubic|cu) ")
FACTOR = re.compile(r"(.*?)(?:\^ ?(-?\d))?", re.DOTALL)
NEUTRAL = re.compile(r"^(?:square |cubic )?units?$")
ORDINAL = re.compile(r"^([-+]?\d+)(?:\^?\{?(?:\\text\{)?(?:st|nd|rd|th)\}?\}?)$")
CLOCK = re.compile(
    r"^(?:\\text\{)?(\d{1,2}):(\d{2})(?::(\d{2}))?(?:\})?\s*(?:\\text\{)?\s*([aApP])?(?(4)\s*\.?\s*[mM]\.?)\s*\}?$"
)
BASES = dict(two=2, three=3, four=4, five=5, six=6, seven=7, eight=8, nine=9, ten=10, eleven=11, twelve=12, sixteen=16)
BASE = re.compile(
    r"^\(?(-?[0-9A-Fa-f]*\d[0-9A-Fa-f]*|[A-F]{2,}|[a-f]{2,}(?=_\{16))\)?"
    r"(?:_\{?\(?(?:\\text\{base ?\})?(?:\\text\{)?(\d{1,2}|[a-z]+)\}?\)?\}?|(?: ?\\text\{)? ?\(?(?:in )?base[- ]?(?:\})?(\d{1,2}|[a-z]+)\)?\}?)$"
)
CHOICE = re.compile(
    r"^(?:\\text\{)?(?:\(([A-J])\)|([A-J])[.):](?=\W|\d|$)|([A-J])(?=\}))[.:]?(?:\})?[.:]?,?(.*)$", re.DOTALL
)
MONEY = re.compile(r"(-?)(\\\$|€|£|¥|\\text\{(?:US)?\\?\$\})")
OPTION = re.compile(r"(?:\\text\{)?(?:[Oo]ption|[Cc]hoice) ?\(?([A-J])\)?\}?")
LABEL = re.compile(r"\([A-J]\)|(?<![A-Za-z\\])[A-J](?:[.):]|\W*$)")
TRIGONOMETRIC = re.compile(r"\\(?:sin|cos|tan|cot|sec|csc)(?![a-z])")


class Quantity(NamedTuple):
    """An expression and its unit, "" for none, "%" for a percentage, "deg" for degrees."""

    core: str
    unit: str


def canonical_unit(words: str, power: str = "") -> str:
    """One spelling for a unit such as `cm`, `square inches` or `meters per second`; "" for a mere "units"."""
    words = " ".join(re.sub(r"(?<!\^)-", " ", words.lower().replace(".", "")).split())
    if NEUTRAL.match(words):
        return ""
    powers: Counter[str] = Counter()
    parts = re.split(r"\s*/\s*|\s+per\s+", words)
    for index, part in enumerate(parts):
        prefix = PREFIX.match(part)
        part = part[prefix.end() :] if prefix else part
        factors = part.split()
        if not all(re.sub(r"\^.*", "", factor) in CANONICAL for factor in factors):
            factors = [part]
        for factor in factors:
            name, exponent = FACTOR.fullmatch(factor).groups()
            exponent = (
                exponent or (prefix and {"s": 2, "c": 3}[prefix[0][0]]) or (index + 1 == len(parts) and power) or 1
            )
            singular = name[:-1] if name.endswith("s") and len(name) > 3 else name
            powers[CANONICAL.get(name, singular)] += int(exponent) * (-1 if index else 1)
    above, below = (
        [f"{n}^{abs(p)}" if abs(p) > 1 else n for n, p in sorted(powers.items()) if p * sign > 0] for sign in (1, -1)
    )
    return {"mi/h": "mph"}.get(unit := "/".join([" ".join(above), *below]), unit)


def quantity(text: str) -> Quantity:
    """Split a normalised scalar without commas into expression and unit."""
    money = MONEY.match(text)
    if money:
        unit = money[2].strip("\\") if len(money[2]) < 3 else "$"
        rest = text[money.end() :]
        inner = quantity(money[1] + rest) if rest and not MONEY.match(rest) else None
        return (
            Quantity(inner.core, inner.unit if inner.unit not in ("", "$") else unit) if inner else Quantity(text, "")
        )
    if text.endswith(("%", r"^\circ", r"\$", "€", "£")):
        for ending, unit in ((r"\%", "%"), ("%", "%"), (r"^\circ", "deg"), (r"\$", "$"), ("€", "€"), ("£", "£")):
            if (
                text.endswith(ending)
                and len(text) > len(ending)
                and not (unit == "deg" and TRIGONOMETRIC.search(text))
            ):
                return Quantity(text.removesuffix(ending).strip(), unit)
    temperature = re.fullmatch(r"(.+)\^\\circ ?(?:\\text\{)?([CF])\}?", text)
    if temperature:
        return Quantity(temperature[1], "deg" + temperature[2])
    ordinal = ORDINAL.match(text)
    if ordinal:
        return Quantity(ordinal[1], "")
    match = TEXT_UNIT.search(text)
    if match and match.start():
        words = re.sub(r"\\frac\{(.*\}?)\}\{(\\text.*)\}$", r"\1/\2", match[1])
        words = re.sub(r"\^\{(-?\d)\}", r"^\1", words).replace("(", "").replace(")", "")
        words = re.sub(r"\\text|\\cdot|[{}\\]", " ", words).replace(" ^ ", "^").replace(" ^", "^")
        if re.fullmatch(r"[A-Za-z%$.^/\d\s*-]*[A-Za-z%][A-Za-z%$.^/\d\s*-]*", words) and not NO_UNIT.search(words):
            return Quantity(text[: match.start()].strip(), canonical_unit(words))
    match = BARE_UNIT.search(text) or BARE_WORDS.search(text)
    if (
        match
        and match.start()
        and not NO_UNIT.search(match[1])
        and not re.search(r"\\[A-Za-z]+ ?$", text[: match.start()])
    ):
        return Quantity(
            text[: match.start()].strip(), canonical_unit(match[1], match[2] if match.re is BARE_UNIT else "")
        )
    return Quantity(text, "")


def clock(text: str) -> tuple[int, int, int, str] | None:
    """(hour, minute, second, "a" | "p" | "") of a time of day."""
    match = CLOCK.match(text)
    if not match:
        return None
    hour, minute, second, half = match.groups()
    return int(hour), int(minute), int(second or 0), (half or "").lower()


def same_time(answer: tuple, gold: tuple) -> bool:
    """Whether two times agree; where only one of them says a.m. or p.m., it decides for both."""

    def hours(time: tuple) -> int:
        return time[0] % 12 + 12 * (time[3] == "p") if time[3] else time[0]

    if answer[1:3] != gold[1:3]:
        return False
    if bool(answer[3]) == bool(gold[3]):
        return hours(answer) == hours(gold)
    return answer[0] == gold[0] or hours(answer) == hours(gold)


def based(text: str) -> tuple[str, int] | None:
    """(digits, base) of a number that names its base, `2516_8`."""
    match = BASE.match(re.sub(r"^\\text\{([0-9A-F]+)\}(?=_)", r"\1", text))
    if not match:
        return None
    name = match[2] or match[3]
    base = int(name) if name.isdigit() else BASES.get(name)
    return (match[1].upper().lstrip("0") or "0", base) if base else None


def choice(text: str) -> tuple[str, str] | None:
    r"""(letter, rest) of a labelled option such as `\text{(A)}\ 5`, `(C)` or `B. 7`."""
    named = OPTION.fullmatch(text)
    if named:
        return named[1], ""
    match = CHOICE.match(text)
    if not match:
        return None
    rest = match[4].strip().removeprefix("}")
    if LABEL.search(rest):  # (A) or (B) chooses nothing
        return None
    return next(filter(None, match.groups()[:3])), rest
