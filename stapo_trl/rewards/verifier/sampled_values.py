"""Decides pairs of algebraic expressions by their values at a few points, without sympy."""

import math
import random
import re
from fractions import Fraction

from .exact import NotReadable, Reader, TooLarge, fail


# f(x), P(5) and dx/dt are no products
NO_PRODUCT = re.compile(
    r"[A-Za-z](?:_\{\w+\})?\([^()+\-*/^]*\)|[fghuvFGHPQTLIJVUWNS](?:_\{\w+\})?\(|'|d(?:\^\{?\d\}?)?[A-Za-z\\]"
)
CONSTANT = re.compile(r"[ei]|\\pi(?![A-Za-z])")
POINTS = 4
# A relative difference that rounding cannot explain between doubles of moderate size
CLEAR, MODERATE = 1e-6, 1e12


class _AtPoint(Reader):
    """Exact values in which every letter, also e and pi, is an arbitrary whole number: what is equal is equal for all."""

    def __init__(self, text: str, point: int):
        super().__init__(text)
        self.point = point

    def name(self, token: str) -> Fraction:
        return Fraction(random.Random(f"{self.point} {token}").randint(101, 999))

    def root(self, base: Fraction, degree: int) -> Fraction:
        fail()  # the root of a square is not its base for every value

    def power(self, base: Fraction, exponent: Fraction) -> Fraction:
        return super().power(base, exponent) if exponent.denominator == 1 else fail()


class _Roughly(Reader):
    """Complex doubles in which letters are arbitrary positive numbers, but e, i and pi are themselves."""

    CONSTANTS = {"e": math.e, "i": 1j, r"\pi": math.pi}

    def number(self, token: str | int) -> complex:
        return self.limit(complex(float(token)))

    def name(self, token: str) -> complex:
        value = self.CONSTANTS.get(token)
        return complex(random.Random(token).uniform(1.2, 2.9)) if value is None else complex(value)

    def power(self, base: complex, exponent: complex) -> complex:
        if (base.imag or base.real < 0) and exponent not in (-2, -1, 0, 1, 2, 3):
            fail()  # (-1)^{2n} depends on n being whole
        return self.limit(base**exponent)

    def added(self, left: complex, right: complex) -> complex:
        total = left + right
        return fail() if abs(total) < CLEAR * abs(left) else total  # what cancels leaves rounding errors

    def root(self, base: complex, degree: int) -> complex:
        return base ** (1 / degree)

    def natural(self, value: complex) -> int:
        return super().natural(Fraction(int(value.real))) if value == int(value.real) and abs(value) < 15 else fail()

    def limit(self, value: complex) -> complex:
        return value if value == 0 or 1 / MODERATE < abs(value) < MODERATE else fail()


def same_by_value(answer: str, gold: str) -> bool | None:
    """Whether two normalised algebraic expressions are equal, if a few values tell.

    `True` if both are rational functions of their letters with the same exact value at random points, `False` if they
    clearly differ at one, `None` where that does not decide (roots that agree, function calls, derivatives).
    """
    if NO_PRODUCT.search(answer) or NO_PRODUCT.search(gold):
        return None
    try:
        if all(_AtPoint(answer, point).read() == _AtPoint(gold, point).read() for point in range(POINTS)):
            return True
        if not CONSTANT.search(answer) and not CONSTANT.search(gold):
            return False
    except (NotReadable, TooLarge, OverflowError, RecursionError):
        pass
    try:
        ours, theirs = _Roughly(answer).read(), _Roughly(gold).read()
    except (NotReadable, TooLarge, ArithmeticError, RecursionError, ValueError):
        return None
    return False if abs(ours - theirs) > CLEAR * max(abs(ours), abs(theirs)) else None
