"""Whether two answers are the same, by structure: lists, tuples, sets, matrices, relations, and what they hold."""

import re
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache

from .exact import TooLarge, approximates, decimals, rational, terminates
from .notation import normalize
from .quantity import based, choice, clock, quantity, same_time


# Decides a pair of expressions that exact arithmetic cannot: True, False, or None for "cannot tell".
Leaf = Callable[[str, str], bool | None]
OPEN, CLOSE = "([", ")]"
RELATION = re.compile(r"\\(?:le|ge|ne|in|approx|subset|equiv|mid|notin)(?![A-Za-z])|[=<>]")
LETTER = re.compile(r"\\(?:alpha|beta|gamma|theta|lambda|mu|phi|omega|angle|max|min|triangle)|(?<![A-Za-z\\])[A-Za-z]")
NAME = re.compile(
    r"(?:\\(?:angle|triangle|text|max|min))? ?\{?(?:[A-Za-z][A-Za-z ]*|\\[A-Za-z]+)\}?'*(?:_\{?[^{}=]*\}?)?(?:\([^=]*\))?"
)
MATRIX = re.compile(r"\\begin\{([bpvBV]?matrix|array)\}(?:\{[clr|]*\})?(.*)\\end\{\1\}(\^\{?(?:T|\\top ?)\}?)?")
INEQUALITY = re.compile(r"[<>]|\\(?:le|ge|ne)(?![A-Za-z])")
PLAIN = re.compile(r"-?\d+(?:\.\d+)?")
DECIMAL_COMMA = re.compile(r"-?\d+,\d+")
APPROXIMATELY = re.compile(r"\\(?:approx|simeq|doteq) ?")
BUILDER = re.compile(r"\\\{([A-Za-z])(?:\\in ?\\mathbb\{R\})?(?:\\mid ?|\||:)(.*)\\\}")
PLUS_MINUS = re.compile(r"\\(?:pm|mp)(?![A-Za-z])")
QUANTIFIER = re.compile(r"^\\forall[^,:]*[,:]|(?:,|\\text\{) ?for (?:all|every|any) .*$")
ARTICLE = re.compile(r"^(?:an?|the) ", re.IGNORECASE)


def split(text: str, separator: str) -> list[str]:
    r"""Splits at `separator` outside all brackets.

    Example:
    ```python
    >>> split("(1,2),\\{3,4\\},5", ",")
    ['(1,2)', '\\{3,4\\}', '5']
    ```
    """
    parts, depth, start, index = [], 0, 0, 0
    while index < len(text):
        char = text[index]
        if char == "\\":
            depth += {"{": 1, "}": -1}.get(text[index + 1 : index + 2], 0)
            index += 2 if text[index + 1 : index + 2] in "{}%$\\" else 1
            continue
        depth += (char in "([{") - (char in ")]}")
        if char == separator and depth <= 0:
            parts.append(text[start:index])
            start = index + 1
        index += 1
    parts.append(text[start:])
    return [part.strip() for part in parts if part.strip()]


def related(text: str) -> bool:
    r"""Whether a relation stands outside all brackets; the k=1 of a sum is none.

    Example:
    ```python
    >>> related("x\\le 3"), related("\\sum_{k=1}^{9}k")
    (True, False)
    ```
    """
    if not RELATION.search(text):
        return False
    for _ in range(12):
        flat = re.sub(r"\\[{}]|\\[lr](?:floor|ceil)", "", text)
        flat = re.sub(r"[(\[{][^()\[\]{}]*[)\]}]", "", flat)
        if flat == text:
            break
        text = flat
    return bool(RELATION.search(text))


def brackets(text: str) -> tuple[str, str, str] | None:
    """(opening, inside, closing) if one pair of brackets encloses the whole text; sets open with a backslash brace."""
    for opening in (r"\{", "(", "["):
        if text.startswith(opening):
            break
    else:
        return None
    depth = index = 0
    while index < len(text):
        two = text[index : index + 2]
        if two in (r"\{", r"\}"):
            depth += 1 if two == r"\{" else -1
            index += 2
        elif text[index] == "\\":
            index += 1
            continue
        else:
            depth += (text[index] in "([{") - (text[index] in ")]}")
            index += 1
        if depth == 0:
            break
    if index != len(text) or depth:
        return None
    closing = r"\}" if opening == r"\{" else text[-1]
    if opening == r"\{" and not text.endswith(r"\}"):
        return None
    return opening, text[len(opening) : len(text) - len(closing)], closing


def _ungroup(text: str) -> str:
    """Drops brackets that enclose one value: ((5)) is 5."""
    while (pair := brackets(text)) and pair[0] + pair[2] == "()" and len(split(pair[1], ",")) == 1:
        text = pair[1].strip()
    while text.startswith("{") and text.endswith("}") and text.count("{") == text.count("}"):
        inner, depth = text[1:-1], 0
        for char in inner:
            depth += (char == "{") - (char == "}")
            if depth < 0:
                return text
        text = inner.strip()
    return text


def _three_valued(values: list[bool | None], decisive: bool) -> bool | None:
    if decisive in values:
        return decisive
    return None if None in values else not decisive


class Comparison:
    """Compares normalised answers; expressions that exact arithmetic cannot decide go to `leaf`.

    Args:
        leaf (`Callable`): Called with (answer, gold); `True`, `False` or `None`.
        tolerance (`float`, *optional*, defaults to `0.0`): Relative error that a plain number may have.
    """

    def __init__(self, leaf: Leaf = lambda answer, gold: None, tolerance: float = 0.0):
        self.leaf = leaf
        self.tolerance = tolerance

    def same(self, answer: str, gold: str) -> bool | None:
        """Whether the answer is the gold; `None` if it takes symbolic work (see `leaf`) to tell."""
        answer, gold = _ungroup(answer), _ungroup(gold)
        if answer == gold:
            return True
        if not QUANTIFIER.search(gold):
            answer = QUANTIFIER.sub("", answer).strip()
        if DECIMAL_COMMA.fullmatch(answer) and PLAIN.fullmatch(gold) and "." in gold:
            answer = answer.replace(",", ".")
        answer, gold = (_without_estimate(text) for text in (answer, gold))
        labelled = self._choices(answer, gold)
        if labelled is not None:
            return labelled
        return self._lists(answer, gold)

    def _choices(self, answer: str, gold: str) -> bool | None:
        of_answer, of_gold = choice(answer), choice(gold)
        letter = re.fullmatch(r"[A-J]", gold)
        if of_gold and not of_gold[1]:
            letter, gold = True, of_gold[0]
        if letter:
            if of_answer:
                return of_answer[0] == gold
            return True if answer == gold else None
        if of_answer and of_answer[1] and not of_gold:
            return self.same(of_answer[1], gold)
        if of_gold and of_gold[1]:
            if of_answer:
                values = [of_answer[0] == of_gold[0], self.same(of_answer[1], of_gold[1]) if of_answer[1] else True]
                return _three_valued(values, False)
            return True if answer == of_gold[0] else self.same(answer, of_gold[1])
        return None

    def _lists(self, answer: str, gold: str) -> bool | None:
        answers, golds = self._items(answer), self._items(gold)
        if len(answers) == 1 == len(golds):
            return self._single(answers[0], golds[0])
        # One side is a list without brackets.
        of_answer = brackets(answer) if len(answers) == 1 else None
        of_gold = brackets(gold) if len(golds) == 1 else None
        if of_gold and of_gold[0] + of_gold[2] == "()":  # the gold is a point: a pair without brackets will do
            return self._ordered(self._values(answers), split(of_gold[1], ","))
        if of_answer and of_answer[0] + of_answer[2] in ("()", "[]"):
            inside = split(of_answer[1], ",")
            if of_answer[0] == "[" and len(inside) < 3:
                return False
            return self._ordered(inside, self._values(golds))
        if of_gold and of_gold[0] == r"\{":
            golds = self._items(of_gold[1])
        if of_answer and of_answer[0] == r"\{":
            answers = self._items(of_answer[1])
        many = answers if len(answers) > 1 else golds
        if min(len(answers), len(golds)) == 1 and all(INEQUALITY.search(item) for item in many):
            return self.leaf(answer, gold)  # "x < 2 or x > 3" against one interval, union or chain
        left, right = (self._members(text) if related(text) else None for text in (answer, gold))
        if left or right:
            return self._unordered(left or answers, right or golds)
        names = [self._name(item) for item in golds]
        if all(names) and len(set(names)) > 1 and not any(related(item) for item in answers):
            return self._ordered(answers, self._values(golds))
        return self._unordered(answers, golds)

    def _members(self, text: str) -> list[str] | None:
        r"""The members that `x \in \{1,2\}`, `x = \{1,2\}` or `x = 1, 2` names."""
        head, *rest = self._items(text)
        value = re.split(r"\\in(?![A-Za-z])|=", head, maxsplit=1)[-1].strip()
        if not rest:
            pair = brackets(value)
            return self._items(pair[1]) if pair and pair[0] == r"\{" else None
        return [value, *rest] if self._name(head) and not any(map(related, rest)) else None

    def _items(self, text: str) -> list[str]:
        """Members of a list; a plus-minus sign stands for two."""
        items = []
        for item in split(text, ","):
            signs = PLUS_MINUS.findall(item)
            if signs and not brackets(item):
                for plus, minus in (("+", "-"), ("-", "+")):
                    one = item.replace(r"\pm", plus).replace(r"\mp", minus)
                    items.append(re.sub(r"(^|[=(,])\s*\+", r"\1", one).replace("+ ", "+").replace("- ", "-"))
            else:
                items.append(item)
        return items or [text]

    def _name(self, item: str) -> str | None:
        """The left side of an assignment x = 5."""
        parts = split(item, "=")
        return parts[0] if len(parts) > 1 and not re.search(r"[<>]", item) and NAME.fullmatch(parts[0]) else None

    def _values(self, items: list[str]) -> list[str]:
        """Right sides of assignments to different names, in the order of the names; other items as they are."""
        names = [self._name(item) for item in items]
        if not all(names):
            return items
        if len(set(names)) == len(names):
            items = [item for _, item in sorted(zip(names, items, strict=True), key=lambda pair: pair[0])]
        return [split(item, "=")[-1] for item in items]

    def _ordered(self, answers: list[str], golds: list[str]) -> bool | None:
        if len(answers) != len(golds):
            return False
        return _three_valued([self.same(a, g) for a, g in zip(answers, golds, strict=True)], False)

    def _unordered(self, answers: list[str], golds: list[str]) -> bool | None:
        """Same members, whatever their order and however often they are named."""
        answers, golds = list(dict.fromkeys(answers)), list(dict.fromkeys(golds))
        if len(answers) > 64 or len(golds) > 64:
            return False
        shared = set(answers) & set(golds)
        rows = [[self.same(a, g) if a not in shared or g not in shared else a == g for g in golds] for a in answers]
        found = [_three_valued(row, True) for row in rows]
        found += [_three_valued([row[index] for row in rows], True) for index in range(len(golds))]
        return _three_valued(found, False)

    def _single(self, answer: str, gold: str) -> bool | None:
        answer, gold = (BUILDER.sub(_condition, text) for text in (answer, gold))
        if answer == gold:
            return True
        if related(answer) or related(gold):
            decided = self._relations(answer, gold)
            return decided
        of_answer, of_gold = MATRIX.fullmatch(answer), MATRIX.fullmatch(gold)
        if any(text.count(r"\begin") > 1 for text in (answer, gold)):
            return self.leaf(answer, gold)
        if of_answer or of_gold:
            return self._matrices(of_answer, of_gold, answer, gold)
        left, right = brackets(answer), brackets(gold)
        if left and right:
            insides = split(left[1], ","), split(right[1], ",")
            if max(map(len, insides)) > 1:
                if (left[0], left[2]) != (right[0], right[2]):
                    return False
                if left[0] == r"\{":
                    return self._unordered(self._items(left[1]), self._items(right[1]))
                return self._ordered(*insides)
        elif left or right:
            pair, other = (left, gold) if left else (right, answer)
            if pair[0] == r"\{" and not re.search(r"\\cup|\\cap|\\mathbb|\\setminus|\\emptyset", other):
                members = self._items(pair[1])
                if len(members) == 1 and not re.search(r"\||\\mid|:", pair[1]):
                    return self.same(members[0], gold) if left else self.same(answer, members[0])
                if len(members) > 1 and rational_or_none(other) is not None:
                    return False
                return self.leaf(answer, gold)
            if len(split(pair[1], ",")) > 1 and rational_or_none(other) is not None:
                return False
        return self._scalars(answer, gold)

    def _matrices(self, of_answer, of_gold, answer: str, gold: str) -> bool | None:
        if not (of_answer and of_gold):
            # only a determinant can equal what is no matrix
            return self.leaf(answer, gold) if (of_answer or of_gold)[1] == "vmatrix" else False
        rows = [[split(row, "&") for row in match[2].split(r"\\") if row.strip()] for match in (of_answer, of_gold)]
        if "vmatrix" in (of_answer[1], of_gold[1]):
            return self.leaf(answer, gold) if of_answer[1] == of_gold[1] else False
        for side, match in enumerate((of_answer, of_gold)):
            if match[3] and len(set(map(len, rows[side]))) == 1:
                rows[side] = [list(column) for column in zip(*rows[side], strict=True)]
        if [len(row) for row in rows[0]] != [len(row) for row in rows[1]]:
            return False
        return self._ordered(sum(rows[0], []), sum(rows[1], []))

    def _relations(self, answer: str, gold: str) -> bool | None:
        ours, theirs = split(answer, "="), split(gold, "=")
        others = [
            re.search(r"[<>]|\\(?:le|ge|ne|in|approx|subset|equiv|mid|notin)(?![A-Za-z])", text)
            for text in (answer, gold)
        ]
        if others[0] or others[1]:
            membership = [re.fullmatch(r"(.+?)\\in ?(?![A-Za-z])(.+)", text) for text in (answer, gold)]
            if membership[0] and not related(membership[0][2]):
                if not others[1] or membership[1]:
                    if membership[1] and membership[0][1].strip() != membership[1][1].strip():
                        return False
                    return self.same(membership[0][2].strip(), membership[1][2].strip() if membership[1] else gold)
            elif membership[1] and not others[0] and not related(membership[1][2]):
                return self.same(answer, membership[1][2].strip())
            if any(rational_or_none(text) is not None for text in (answer, gold)):
                return False
            # m \in [2, 3] against 2 <= m <= 3
            ours, theirs = (m[2].strip() if m else text for m, text in zip(membership, (answer, gold), strict=True))
            return self.leaf(ours, theirs)
        if len(theirs) == 1:
            # a value is asked for: x = 5 is 5, 2+3 = 5 is 5, 7 = 5 is not
            values = ours[1:] if LETTER.search(ours[0]) else ours
            if LETTER.search(values[-1]) and not LETTER.search(gold):
                return False
            checked = values if all(not LETTER.search(v) for v in values) else values[-1:]
            return _three_valued([self.same(value, gold) for value in checked], False)
        if len(ours) == 1:
            return (
                self.same(answer, theirs[-1])
                if NAME.fullmatch(theirs[0])
                else (False if rational_or_none(answer) is not None else self.leaf(answer, gold))
            )
        names = self._name(answer), self._name(gold)
        if all(names) and names[0] == names[1]:
            return self.same(ours[-1], theirs[-1])
        if all(names) and rational_or_none(ours[-1]) is not None and rational_or_none(theirs[-1]) is not None:
            return False
        return self.leaf(answer, gold)

    def _scalars(self, answer: str, gold: str) -> bool | None:
        times = clock(answer), clock(gold)
        if all(times):
            return same_time(*times)
        if any(times):
            return False
        if ":" in answer + gold:
            parts = split(answer, ":"), split(gold, ":")
            return self._ordered(*parts) if len(parts[0]) == len(parts[1]) > 1 else False
        bases = based(answer), based(gold)
        if any(bases):
            return self._bases(answer, gold, bases)
        ours, theirs = quantity(answer), quantity(gold)
        if ours.unit and theirs.unit and ours.unit != theirs.unit:
            return False
        if "%" in (ours.unit, theirs.unit):
            return self._percent(ours, theirs)
        return self._expressions(_ungroup(ours.core), _ungroup(theirs.core))

    def _bases(self, answer: str, gold: str, bases: tuple) -> bool | None:
        of_answer, of_gold = bases
        if of_answer and of_gold:
            return of_answer == of_gold
        if of_gold:
            return (answer.upper().lstrip("0") or "0") == of_gold[0]
        return of_answer[1] == 10 and self.same(of_answer[0], gold)

    def _percent(self, ours, theirs) -> bool | None:
        """28% is 28, 28% and 0.28; a plain 42 is also 42%, a plain 0.28 only 28%; 42 is not 4200%."""
        if ours.unit == theirs.unit:
            return self._expressions(ours.core, theirs.core)
        value = rational_or_none(theirs.core)
        plain = self._expressions(_ungroup(ours.core), _ungroup(theirs.core))
        if theirs.unit != "%" and (value is None or abs(value) < 1 or not PLAIN.fullmatch(theirs.core)):
            plain = False
        if plain:
            return True
        if theirs.unit == "%":
            hundredth = self._expressions(_ungroup(ours.core), rf"\frac{{{theirs.core}}}{{100}}")
        else:
            if value is not None and (value.denominator == 1 and value not in (0, 1)):
                return plain
            hundredth = self._expressions(rf"\frac{{{ours.core}}}{{100}}", _ungroup(theirs.core))
        return _three_valued([plain, hundredth], True)

    def _expressions(self, answer: str, gold: str) -> bool | None:
        if answer == gold:
            return True
        if re.search(r"\d \d", answer + "|" + gold):  # "1 2" is neither 12 nor 1 times 2
            return False
        ours, theirs = rational(answer), rational(gold)
        if ours is not None and theirs is not None:
            return self.same_numbers(ours, theirs, decimals(answer), decimals(gold))
        if answer.isalpha() and len(answer) > 1 and answer.lower() == gold.lower():
            return True
        words = _words(answer), _words(gold)
        if any(words):
            return (
                words[0] == words[1]
                if all(words)
                else (False if ours is not None or theirs is not None else self.leaf(answer, gold))
            )
        if (ours is None) != (theirs is None) and re.fullmatch(r"[A-Za-z]", answer if ours is None else gold):
            return False
        return self.leaf(answer, gold)

    def same_numbers(self, ours: Fraction, theirs: Fraction, places: int | None, gold_places: int | None) -> bool:
        """Whether two exact values are the same answer; `places` are the decimals shown, if a plain decimal."""
        if ours == theirs or self.tolerance and abs(ours - theirs) <= self.tolerance * abs(theirs):
            return True
        if places is not None and not terminates(theirs):
            return approximates(ours, places, theirs)
        if gold_places is not None and not terminates(ours):
            return approximates(theirs, gold_places, ours)
        return False


def rational_or_none(text: str) -> Fraction | None:
    """`rational` of what is left without unit; a giant counts as unknown."""
    try:
        return rational(quantity(text).core)
    except TooLarge:
        return None


def _condition(builder: re.Match) -> str:
    """{x | x > 2} says no more than x > 2."""
    return builder[2] if RELATION.search(builder[2]) and builder[1] in builder[2] else builder[0]


def _without_estimate(text: str) -> str:
    r"""1/3 \approx 0.33 is 1/3, but x \approx 11 is 11, for want of better."""
    parts = APPROXIMATELY.split(text)
    if len(parts) == 1:
        return text
    exact = parts[0].strip()
    return exact if exact and not NAME.fullmatch(exact) else parts[1].strip()


def _words(text: str) -> str | None:
    r"""Text that is a word and no product: \text{east}, Evelyn, ABC, "no solution"."""
    match = re.fullmatch(r"(?:\\text\{)?([A-Za-z][A-Za-z '.-]*)\}?", text)
    if not match:
        return None
    word = ARTICLE.sub("", match[1].strip().rstrip("."))
    letters = word.replace(" ", "")
    if len(letters) < 2 or (len(letters) < 4 and letters.islower() and not text.startswith(r"\text")):
        return None
    return word.lower()


@lru_cache(maxsize=4096)
def canonical(text: str) -> str:
    """`normalize`, remembered: every gold comes once per completion of its group."""
    return normalize(text)
