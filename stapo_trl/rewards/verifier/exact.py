"""Exact rational arithmetic on normalised answers, which decides plain numbers without sympy and refuses giants."""

import re
from fractions import Fraction
from math import comb, factorial, gcd, isqrt, log2

from .text.brackets import braced


# About 6,000 digits; 2007! fits
MAX_BITS = 20_000
MAX_DEPTH = 40
# x^{9^9} or a sum up to 10^7 would cost a worker its whole time limit
MAX_EXPONENT = 100_000
MAX_EXPONENTS = 100
GREEK = (
    "alpha|beta|gamma|delta|epsilon|zeta|eta|theta|kappa|lambda|mu|nu|xi|pi|rho|sigma|tau|phi|chi|psi|omega|hbar|ell|"
    "Gamma|Delta|Theta|Lambda|Xi|Pi|Sigma|Phi|Psi|Omega"
)
TOKEN = re.compile(
    r"\s*(\d+\.?\d*|\.\d+|\\(?:frac|sqrt|binom|cdot|times|div|overline|dot|bar)(?![A-Za-z])|[-+*/^!(){}\[\]]|"
    r"(?:[A-Za-z]|\\(?:" + GREEK + r")(?![A-Za-z]))(?:_\{[A-Za-z0-9]+\})?)"
)
# 0.1\overline{6}, 0.\dot{3}, 0.\dot{1}42857\dot{7}, 0.(3), 0.333...
REPEATING = re.compile(
    r"(\d*)\.(\d*?)(?:\\(?:overline|bar|dot)\{(\d+)\}|(\\dot\{\d\}\d*\\dot\{\d\})|\((\d+)\)|(\d)\6\6+\\ldots)"
)


class TooLarge(ValueError):
    """A number too large to write down."""


class NotReadable(Exception):
    """Text that is no expression of this kind."""


def _power(base: Fraction, exponent: Fraction) -> Fraction:
    if exponent.denominator != 1:
        return _root(base, exponent.denominator) ** exponent.numerator if abs(exponent.numerator) < 64 else fail()
    power = exponent.numerator
    if base in (0, 1, -1):
        return base ** (power % 2 if base == -1 else min(power, 1)) if power >= 0 or base else fail()
    bits = max(abs(base.numerator).bit_length(), base.denominator.bit_length())
    if abs(power) * max(bits - 1, log2(1.5)) > MAX_BITS:
        raise TooLarge
    return base**power


def _root(base: Fraction, degree: int) -> Fraction:
    if degree == 2 and base >= 0:
        top, bottom = isqrt(base.numerator), isqrt(base.denominator)
    elif 1 <= degree <= 64 and base >= 0 and base.numerator.bit_length() < 900 and base.denominator.bit_length() < 900:
        top, bottom = round(base.numerator ** (1 / degree)), round(base.denominator ** (1 / degree))
    else:
        fail()
    if (top**degree, bottom**degree) != (base.numerator, base.denominator):
        fail()
    return Fraction(top, bottom)


def fail():
    raise NotReadable


class Reader:
    """Recursive descent over the tokens of one expression; subclasses say what numbers and letters are."""

    def __init__(self, text: str):
        self.tokens = []
        self.position = self.depth = 0
        index = 0
        while index < len(text):
            match = TOKEN.match(text, index)
            # The rest is only marked, so that giants before an unknown command are refused too
            self.tokens.append(match[1] if match else "?")
            if not match:
                break
            index = match.end()

    def number(self, token: str | int) -> Fraction:
        return Fraction(token)

    def name(self, token: str) -> Fraction:
        fail()

    def power(self, base: Fraction, exponent: Fraction) -> Fraction:
        return _power(base, exponent)

    def root(self, base: Fraction, degree: int) -> Fraction:
        return _root(base, degree)

    def added(self, left: Fraction, right: Fraction) -> Fraction:
        return left + right

    def natural(self, value: Fraction) -> int:
        """A number that may be counted up to, for factorials and binomials."""
        if value.denominator != 1 or value < 0:
            fail()
        if value > 2500:
            raise TooLarge
        return value.numerator

    def limit(self, value: Fraction) -> Fraction:
        if max(value.numerator.bit_length(), value.denominator.bit_length()) > MAX_BITS:
            raise TooLarge
        return value

    def read(self) -> Fraction:
        value = self.sum()
        if self.position < len(self.tokens):
            fail()
        return value

    def peek(self) -> str:
        return self.tokens[self.position] if self.position < len(self.tokens) else ""

    def take(self, expected: str = "") -> str:
        token = self.peek()
        if not token or (expected and token != expected):
            fail()
        self.position += 1
        return token

    def sum(self) -> Fraction:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise TooLarge
        value = self.product()
        while self.peek() in ("+", "-"):
            sign = 1 if self.take() == "+" else -1
            value = self.added(value, sign * self.product())
        self.depth -= 1
        return value

    def product(self) -> Fraction:
        sign = 1
        while self.peek() in ("+", "-"):
            sign = -sign if self.take() == "-" else sign
        value = self.factor()
        while True:
            token = self.peek()
            if token in (r"\cdot", r"\times", "*"):
                self.take()
                negative = self.peek() == "-" and self.take()
                value *= -self.factor() if negative else self.factor()
            elif token in ("/", r"\div"):
                self.take()
                divisor = self.factor()
                if divisor == 0 or self.starts_factor():  # 1/2x can be read in two ways
                    fail()
                value /= divisor
            elif self.starts_factor():
                value *= self.factor()
            else:
                break
            value = self.limit(value)
        return sign * value

    def starts_factor(self) -> bool:
        token = self.peek()
        return token in ("(", "{", r"\frac", r"\sqrt", r"\binom") or is_name(token)

    def factor(self) -> Fraction:
        value = self.atom()
        while True:
            if self.peek() == "^":
                self.take()
                value = self.power(value, self.exponent())
            elif self.peek() == "!":
                self.take()
                value = self.number(factorial(self.natural(value)))
            else:
                return value

    def exponent(self) -> Fraction:
        if self.peek() == "-":
            self.take()
            return -self.exponent()
        value = self.atom()
        if self.peek() == "^":
            self.take()
            value = self.power(value, self.exponent())
        return value

    def group(self) -> Fraction:
        closing = {"(": ")", "{": "}", "[": "]"}.get(self.take()) or fail()
        value = self.sum()
        self.take(closing)
        return value

    def atom(self) -> Fraction:
        token = self.peek()
        if token in ("(", "{"):
            return self.group()
        self.take()
        if token == r"\frac":
            top, bottom = self.group(), self.group()
            return top / bottom if bottom else fail()
        if token == r"\sqrt":
            degree = self.natural(Reader.group(self)) if self.peek() == "[" else 2
            return self.root(self.group(), degree) if 1 <= degree <= 64 else fail()
        if token == r"\binom":
            top, bottom = self.natural(self.group()), self.natural(self.group())
            return self.number(comb(top, bottom))
        if is_name(token):
            return self.name(token)
        if not token[0].isdigit() and token[0] != "." or len(token) > 4000:
            fail()
        return self.number(token.rstrip("."))


def is_name(token: str) -> bool:
    """Whether a token is a Latin or Greek letter."""
    return (
        token[:1].isalpha() or token[:1] == "\\" and re.match(r"\\(?:" + GREEK + r")(?![A-Za-z])", token) is not None
    )


def _repeating(text: str) -> Fraction | None:
    match = REPEATING.fullmatch(text)
    if not match:
        return None
    whole, plain, *cycles = match.groups()
    cycle = next((c for c in cycles if c), "").replace(r"\dot{", "").replace("}", "")
    places = 10 ** len(plain)
    return int(whole or 0) + Fraction(int(plain + cycle) - int(plain or 0), places * (10 ** len(cycle) - 1))


def rational(text: str) -> Fraction | None:
    """The exact value of a normalised expression, `None` if it is not plainly a rational number.

    Raises `TooLarge` if a number on the way has more than about 6,000 digits or brackets nest deeper than 40.
    """
    repeating = _repeating(text.lstrip("-+"))
    if repeating is not None:
        return -repeating if text.startswith("-") else repeating
    if not text or len(text) > 10_000:
        return None
    try:
        return Reader(text).read()
    except (NotReadable, OverflowError, RecursionError):
        return None


def refuse_giants(text: str) -> None:
    """Raise `TooLarge` for an exponent or bound beyond 100,000 anywhere in a normalised expression."""
    groups = [match.end() for match in re.finditer(r"\^(?=\{)", text)]
    if len(groups) > MAX_EXPONENTS:
        raise TooLarge
    for start in groups:
        group = braced(text, start)
        value = rational(group[0]) if group else None
        if value is not None and abs(value) > MAX_EXPONENT:
            raise TooLarge


def decimals(text: str) -> int | None:
    """How many decimals a plain decimal number shows; `None` if the text is no such number."""
    match = re.fullmatch(r"[-+]?\d*\.(\d+)", text)
    return len(match[1]) if match else None


def approximates(decimal: Fraction, places: int, value: Fraction) -> bool:
    """Whether a decimal that shows `places` decimals is `value` cut or rounded, with at least six decimals and six digits."""
    if places < 6 or abs(decimal) * 10**places < 10**5:
        return False
    cut = Fraction(int(value * 10**places), 10**places)
    return decimal in (round(value, places), cut) and round(decimal, 6) == round(value, 6)


def terminates(value: Fraction) -> bool:
    """Whether the decimal expansion of a value ends, so that only the exact decimal is right."""
    rest = value.denominator
    while (common := gcd(rest, 10)) > 1:
        rest //= common
    return rest == 1
