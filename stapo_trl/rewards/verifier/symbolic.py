"""Symbolic equality of two expressions with math-verify and sympy, for worker processes only: it may hang."""

import logging
import random
import re
from fractions import Fraction
from functools import lru_cache

from latex2sympy2_extended import NormalizationConfig, latex2sympy
from latex2sympy2_extended.latex2sympy2 import ConversionConfig
from latex2sympy2_extended.logic import And
from math_verify.grader import should_treat_as_complex, verify
from sympy import (
    Basic,
    Expr,
    Float,
    I,
    Integer,
    Integral,
    Intersection,
    Limit,
    MatrixBase,
    Product,
    Rational,
    S,
    Set,
    Sum,
    Symbol,
    Union,
    nan,
    zoo,
)
from sympy.core.evalf import PrecisionExhausted
from sympy.core.function import AppliedUndef
from sympy.core.relational import Relational

from .comparison import Comparison
from .exact import approximates, decimals, rational
from .text.brackets import related, split
from .text.quantity import TRIGONOMETRIC


logging.getLogger("math_verify").setLevel(logging.CRITICAL)

DIGITS = 50
# Values that agree to this relative error are the same
CLOSE = Fraction(1, 10**30)
READING = NormalizationConfig(basic_latex=True, units=False, malformed_operators=False, nits=False, boxed="none")
CASE = ConversionConfig(lowercase_symbols=False)
UNFINISHED = (Integral, Limit, Product, Sum)
# The parser learns its grammar as it goes; what it learns before the workers fork, they all know
LESSONS = (
    r"\frac{\sqrt{2}+x^{2}}{3}-\pi",
    r"2\sin(3x)+\cos^{2}y",
    r"(-\infty,2)\cup[3,\infty)",
    r"x^{2}+y^{2}=1",
    r"0<x\le1",
    r"e^{-2t}\ln x",
)
# What the parser drops silently or reads as a product of letters
IGNORED = re.compile(r"\\(?:ldots|angle|triangle|perp|parallel)|[)\]}]'|(?<=[\d)])_")
FUNCTION = r"(\\(?:arc)?(?:sin|cos|tan|cot|sec|csc|ln|lg|log(?:_\{[^{}]*\})?)(?:\^\{[^{}]*\})?)"
ARGUMENT = r"(?:\d|[A-Za-z]|\\[a-z]+ ?(?:\{[^{}]*\}){1,2}|\\(?:alpha|beta|gamma|theta|phi|omega|pi) ?|\^\{[^{}]*\})"
# A derivative is not its function, gamma is a letter, the exponent T is no transposition,
# and a product after an argument, as in \ln 2 \cdot 3, is not part of it
SYMBOLS = (
    (re.compile(r"([A-Za-z])('+)"), lambda match: f"{match[1]}_{{{'p' * len(match[2])}rime}}"),
    (re.compile(r"\\gamma(?![A-Za-z])|\\Gamma(?![A-Za-z(])"), r"\\Upsilon "),
    (re.compile(r"\^\{?T\}?"), "^{(T)}"),
    (re.compile(FUNCTION + r" ?(" + ARGUMENT + r"+)(?=\\(?:cdot|times))"), r"\1(\2)"),
)
DEGREES = re.compile(r"(\d+(?:\.\d+)?|\\frac\{\d+\}\{\d+\}|[a-z])\^\\circ ?")
# Functions of whole numbers, whose identities need not hold in between
OF_INTEGERS = re.compile(r"\\[lr]?(?:floor|ceil)|!|\\binom|\(-1\)\^|\\gcd|\\bmod|\\mod|\\pmod")


def warm_up() -> None:
    """Read the lessons, before the workers fork."""
    for lesson in LESSONS:
        read(lesson)


@lru_cache(maxsize=256)
def read(text: str) -> Basic | MatrixBase | None:
    """What math-verify's parser makes of a normalised answer, with exact floats and real symbols; `None` if it refuses."""
    if TRIGONOMETRIC.search(text):
        text = DEGREES.sub(r"(\\frac{\1 \\pi}{180})", text)
    if IGNORED.search(text):
        return None
    for pattern, replacement in SYMBOLS:
        text = pattern.sub(replacement, text)
    text = text.replace(r"\lg ", r"\log_{10} ").replace(r"\lg", r"\log_{10}")
    text = re.sub(r"\\text\{ ?([A-Za-z]+) ?\}", r"\1", text)
    try:
        parsed = latex2sympy(
            text,
            is_real=not should_treat_as_complex(text),
            convert_degrees=False,
            normalization_config=READING,
            conversion_config=CASE,
        )
    except (MemoryError, RecursionError):
        raise
    except Exception:  # the parser raises a bare Exception for text it does not know
        return None
    if not isinstance(parsed, (Basic, MatrixBase)) or parsed.has(zoo, nan):
        return None
    symbols = {symbol: I if symbol.name == "i" else Symbol(symbol.name, real=True) for symbol in parsed.free_symbols}
    floats = {number: Rational(str(number)) for number in parsed.atoms(Float)}
    return parsed.xreplace(symbols | floats) if symbols or floats else parsed


def _number(expression: Expr) -> tuple[Fraction, Fraction] | None:
    """Real and imaginary part to 50 digits."""
    value = expression.evalf(DIGITS)
    real, imaginary = value.as_real_imag()
    if not (real.is_number and imaginary.is_number and real.is_finite and imaginary.is_finite):
        return None
    if not all(part.is_Float or part.is_Rational for part in (real, imaginary)):
        return None
    real, imaginary = Rational(real), Rational(imaginary)
    return Fraction(int(real.p), int(real.q)), Fraction(int(imaginary.p), int(imaginary.q))


def _close(left: tuple, right: tuple) -> bool:
    scale = max(*(abs(part) for part in left), *(abs(part) for part in right))
    return all(abs(a - b) <= CLOSE * scale for a, b in zip(left, right, strict=True))


def _vanishes(difference: Expr) -> bool:
    """Whether a number is 0 to 400 digits: 50 do not tell sqrt(10^40 + 1) from 10^20."""
    try:
        return difference.evalf(2, maxn=1400, strict=True) == 0
    except PrecisionExhausted:
        return True


def _same_at_points(ours: Expr, theirs: Expr, integers_only: bool) -> bool | None:
    """Compare two expressions at random points; `None` if they cannot be evaluated at enough of them."""
    names = sorted(ours.free_symbols | theirs.free_symbols, key=lambda symbol: symbol.name)
    draw = random.Random(0)
    agreed = 0
    for attempt in range(14):
        if integers_only:
            point = {name: Integer(draw.randint(2, 9 + attempt)) for name in names}
        else:
            # Positive points first; a negative one counts only where both sides are real
            sign = -1 if attempt % 4 == 3 else 1
            point = {name: sign * Rational(draw.randint(200, 3000), 997) for name in names}
        try:
            left, right = _number(ours.subs(point)), _number(theirs.subs(point))
        except (TypeError, ValueError, ZeroDivisionError, NotImplementedError, AttributeError):
            continue
        if left is None or right is None:
            continue
        if not _close(left, right):
            if not integers_only and sign < 0 and (left[1] or right[1]):
                continue
            return False
        agreed += 1
        if agreed >= 8:
            return True
    return None


def _same_expressions(ours: Expr, theirs: Expr, answer: str, gold: str) -> bool | None:
    if ours == theirs:
        return True
    if not (ours.free_symbols or theirs.free_symbols):
        ours, theirs = (side.doit() if side.has(*UNFINISHED) else side for side in (ours, theirs))
        left, right = _number(ours), _number(theirs)
        if left is None or right is None:
            return None
        if _close(left, right) or not any(left) or not any(right):
            return _vanishes(ours - theirs)
        for text, value in ((answer, right), (gold, left)):
            places = decimals(text)
            if places is not None and not value[1]:
                return approximates(rational(text), places, value[0])
        return False
    if ours.atoms(AppliedUndef) or theirs.atoms(AppliedUndef):
        return None
    return _same_at_points(ours, theirs, bool(OF_INTEGERS.search(answer) or OF_INTEGERS.search(gold)))


def same(answer: str, gold: str) -> bool | None:
    """Whether two normalised expressions are equal; `None` if one of them cannot be read.

    Plain values are compared by relative error, expressions with letters at random points. Relations, sets and the rest go
    through `math_verify.verify` with exact numbers, so that its rounding finds nothing to round.
    """
    theirs, ours = (
        _joined(items) if len(items := split(text, ",")) > 1 and related(text) else read(text)
        for text in (gold, answer)
    )
    if ours is None or theirs is None:
        return None
    if isinstance(ours, Expr) and isinstance(theirs, Expr) and not isinstance(ours, MatrixBase):
        decided = _same_expressions(ours, theirs, answer, gold)
        if decided is not None:
            return decided
    sets = _solutions(ours), _solutions(theirs)
    if None not in sets and (
        isinstance(ours, Set) or isinstance(theirs, Set) or ours.free_symbols == theirs.free_symbols
    ):
        return bool(sets[0].symmetric_difference(sets[1]).is_empty)
    if isinstance(ours, Relational) and isinstance(theirs, Relational):
        equations = [side.lhs - side.rhs for side in (ours, theirs)]
        if ours.rel_op == theirs.rel_op == "==":
            return _proportional(*equations)
    return bool(
        verify(
            theirs,
            ours,
            float_rounding=DIGITS,
            numeric_precision=DIGITS,
            allow_set_relation_comp=True,
            timeout_seconds=None,
        )
    )


def _solutions(relation: Basic) -> Set | None:
    """The real solutions of an inequality (or a chain) in one letter; a set as it is; `None` for anything else."""
    if isinstance(relation, Set):
        return relation
    parts = relation._unsorted_args if isinstance(relation, And) else [relation]
    names = relation.free_symbols if isinstance(relation, Basic) else ()
    if len(names) != 1 or not all(isinstance(part, Relational) and part.rel_op != "==" for part in parts):
        return None
    name = next(iter(names))
    return Intersection(*(part.as_set() if part.free_symbols == {name} else S.Reals for part in parts))


def _joined(items: list[str]) -> Set | None:
    """Inequalities in a row mean "or" where nothing meets all of them, "and" where everything meets one of them."""
    sets = [_solutions(part) if (part := read(item)) is not None else None for item in items]
    if None in sets or not all(related(item) for item in items):
        return None
    both, either = Intersection(*sets), Union(*sets)
    if both.is_empty:
        return either
    return both if either == S.Reals else None


def _proportional(ours: Expr, theirs: Expr) -> bool:
    """Whether two equations `... = 0` differ by a constant factor only."""
    ratio = (ours / theirs).cancel() if theirs != 0 else None
    return bool(ratio is not None and ratio != 0 and not ratio.free_symbols)


def check(answer: str, gold: str, tolerance: float = 0.0) -> bool:
    """Whether a normalised answer is the normalised gold, by structure and, where needed, symbolically."""
    try:
        return bool(Comparison(same, tolerance).same(answer, gold))
    except (TypeError, NotImplementedError):  # sympy has no order for 2i and no set for x > (1, 2)
        return False
