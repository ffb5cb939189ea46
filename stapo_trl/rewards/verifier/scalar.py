"""Compares single values: numbers with their units, percentages, times, bases, words."""

import re
from collections.abc import Callable
from fractions import Fraction

from .exact import TooLarge, approximates, decimals, rational, terminates
from .sampled_values import same_by_value
from .text.brackets import ungroup
from .text.quantity import based, clock, quantity, same_time


# Decides a pair of (answer, gold) that exact arithmetic cannot: True, False, or None for "cannot tell"
Leaf = Callable[[str, str], bool | None]


def undecided(answer: str, gold: str) -> None:
    return None


PLAIN = re.compile(r"-?\d+(?:\.\d+)?")
# A lone letter, and words: "less than 0" is no product with 0
NO_NUMBER = re.compile(r"^[A-Za-df-z]$|^(?!.*\\int).*(?<![A-Za-z\\])[A-Za-z]{3,}")
ARTICLE = re.compile(r"^(?:an?|the) ", re.IGNORECASE)


def three_valued(values: list[bool | None], decisive: bool) -> bool | None:
    """`decisive` if it occurs, else `None` if a value is unknown, else its opposite: any() for True, all() for False."""
    if decisive in values:
        return decisive
    return None if None in values else not decisive


class Scalars:
    """Compares normalised single values; what exact arithmetic cannot decide goes to `leaf`.

    `tolerance` is the relative error that a plain number may have.
    """

    def __init__(self, leaf: Leaf, tolerance: float):
        self.leaf = leaf
        self.tolerance = tolerance

    def same(self, answer: str, gold: str) -> bool | None:
        """Whether two scalars are the same; `None` if exact arithmetic and text do not tell."""
        times = clock(answer), clock(gold)
        if all(times):
            return same_time(*times)
        if any(times):
            return False
        bases = based(answer), based(gold)
        if any(bases):
            return self._bases(answer, gold, bases)
        ours, theirs = quantity(answer), quantity(gold)
        if ours.unit and theirs.unit and ours.unit != theirs.unit:
            return False
        if "%" in (ours.unit, theirs.unit):
            return self._percent(ours, theirs)
        return self._expressions(ungroup(ours.core), ungroup(theirs.core))

    def _bases(self, answer: str, gold: str, bases: tuple) -> bool | None:
        of_answer, of_gold = bases
        if of_answer and of_gold:
            return of_answer == of_gold
        if of_gold:
            return (answer.upper().lstrip("0") or "0") == of_gold[0]
        return of_answer[1] == 10 and self._expressions(of_answer[0], gold)

    def _percent(self, ours, theirs) -> bool | None:
        """28% is 28, 28% and 0.28; a plain 42 is also 42%, a plain 0.28 only 28%, and 42 is not 4200%."""
        if ours.unit == theirs.unit:
            return self._expressions(ours.core, theirs.core)
        value = rational_or_none(theirs.core)
        plain = self._expressions(ungroup(ours.core), ungroup(theirs.core))
        if theirs.unit != "%" and (value is None or abs(value) < 1 or not PLAIN.fullmatch(theirs.core)):
            plain = False
        if plain:
            return True
        if theirs.unit == "%":
            hundredth = self._expressions(ungroup(ours.core), rf"\frac{{{theirs.core}}}{{100}}")
        else:
            if value is not None and (value.denominator == 1 and value not in (0, 1)):
                return plain
            hundredth = self._expressions(rf"\frac{{{ours.core}}}{{100}}", ungroup(theirs.core))
        return three_valued([plain, hundredth], True)

    def _expressions(self, answer: str, gold: str) -> bool | None:
        if answer == gold:
            return True
        if re.search(r"\d \d", answer + "|" + gold):  # "1 2" is neither 12 nor 1 times 2
            return False
        ours, theirs = rational(answer), rational(gold)
        if ours is not None and theirs is not None:
            return self._numbers(ours, theirs, decimals(answer), decimals(gold))
        if answer.isalpha() and len(answer) > 1 and answer.lower() == gold.lower():
            return True
        words = _as_words(answer), _as_words(gold)
        if any(words):
            return (
                words[0] == words[1]
                if all(words)
                else (False if ours is not None or theirs is not None else self.leaf(answer, gold))
            )
        if (ours is None) != (theirs is None) and NO_NUMBER.search(answer if ours is None else gold):
            return False
        by_value = same_by_value(answer, gold)
        return self.leaf(answer, gold) if by_value is None else by_value

    def _numbers(self, ours: Fraction, theirs: Fraction, places: int | None, gold_places: int | None) -> bool:
        """Whether two exact values are the same answer, given the decimals that each shows if it is a plain decimal."""
        if ours == theirs or self.tolerance and abs(ours - theirs) <= self.tolerance * abs(theirs):
            return True
        if places is not None and not terminates(theirs):
            return approximates(ours, places, theirs)
        if gold_places is not None and not terminates(ours):
            return approximates(theirs, gold_places, ours)
        return False


def rational_or_none(text: str) -> Fraction | None:
    """`rational` without the unit; a giant counts as unknown."""
    try:
        return rational(quantity(text).core)
    except TooLarge:
        return None


def _as_words(text: str) -> str | None:
    r"""Lower-case text that is words and no product: \text{east}, Evelyn, ABC, "no solution"."""
    match = re.fullmatch(r"(?:\\text\{)?([A-Za-z][A-Za-z '.-]*)\}?", text)
    if not match:
        return None
    word = ARTICLE.sub("", match[1].strip().rstrip("."))
    letters = word.replace(" ", "")
    if len(letters) < 2 or (len(letters) < 4 and letters.islower() and not text.startswith(r"\text")):
        return None
    return word.lower()
