"""Compares two answers by structure: lists, tuples, sets, matrices, relations, and what they hold."""

import re
from functools import lru_cache

from .exact import decimals
from .scalar import PLAIN, Leaf, Scalars, rational_or_none, three_valued, undecided
from .text.brackets import RELATION, brackets, related, split, ungroup
from .text.notation import normalize
from .text.quantity import choice, clock, quantity


LETTER = re.compile(r"\\(?:alpha|beta|gamma|theta|lambda|mu|phi|omega|angle|max|min|triangle)|(?<![A-Za-z\\])[A-Za-z]")
NAME = re.compile(
    r"\|[A-Z]{1,3}\||(?:\\(?:angle|triangle|text|max|min))? ?\{?(?:[A-Za-z][A-Za-z ]*|\\[A-Za-z]+)\}?'*(?:_\{?[^{}=]*\}?)?(?:\([^=]*\))?"
)
MATRIX = re.compile(r"\\begin\{([bpvBV]?matrix|array)\}(?:\{[clr|]*\})?(.*)\\end\{\1\}(\^\{?(?:T|\\top ?)\}?)?")
INEQUALITY = re.compile(r"[<>]|\\(?:le|ge|ne)(?![A-Za-z])")
DECIMAL_COMMA = re.compile(r"-?\d+,\d+")
POINT_NAME = re.compile(r"^\([A-Za-z](?:,[A-Za-z])+\)=(?=\()")
APPROXIMATELY = re.compile(r"\\(?:approx|simeq|doteq) ?")
BARE_NAME = re.compile(r"(?:[A-Za-z]|\\(?:alpha|beta|gamma|theta|lambda|mu|phi|omega))(?:_\{\w+\})?(?:\([a-z]\))?")
MIRROR = {"<": ">", ">": "<", r"\le": r"\ge", r"\ge": r"\le"}
BUILDER = re.compile(r"\\\{([A-Za-z])(?:\\in ?\\mathbb\{R\})?(?:\\mid ?|\||:)(.*)\\\}")
PLUS_MINUS = re.compile(r"\\(?:pm|mp)(?![A-Za-z])")
QUANTIFIER = re.compile(r"^\\forall[^,:]*[,:]|(?:,|\\text\{) ?for (?:all|every|any)(?![a-z]).*$")


class Comparison:
    """Compares normalised answers; what exact arithmetic cannot decide goes to `leaf`."""

    def __init__(self, leaf: Leaf = undecided, tolerance: float = 0.0):
        self.leaf = leaf
        self.scalars = Scalars(leaf, tolerance)

    def same(self, answer: str, gold: str) -> bool | None:
        """Whether the answer is the gold; `None` if only symbolic work can tell."""
        answer, gold = ungroup(answer), ungroup(gold)
        if answer == gold:
            return True
        if not QUANTIFIER.search(gold):
            answer = QUANTIFIER.sub("", answer).strip()
        if DECIMAL_COMMA.fullmatch(answer) and PLAIN.fullmatch(gold) and "." in gold:
            answer = answer.replace(",", ".")
        elif DECIMAL_COMMA.fullmatch(gold) and answer == gold.replace(",", ".") and decimals(answer) > 1:
            return True
        answer, gold = (_without_estimate(text) for text in (answer, gold))
        points = POINT_NAME.match(answer), POINT_NAME.match(gold)
        if all(points) and points[0][0] != points[1][0]:
            return False  # (y,x) = (1,2) is not (x,y) = (1,2)
        answer, gold = POINT_NAME.sub("", answer), POINT_NAME.sub("", gold)
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
                return three_valued(values, False)
            return True if answer == of_gold[0] else self.same(answer, of_gold[1])
        return None

    def _lists(self, answer: str, gold: str) -> bool | None:
        answers, golds = self._items(answer), self._items(gold)
        if len(answers) == 1 == len(golds):
            return self._single(answers[0], golds[0])
        # One side is a list without brackets
        of_answer = brackets(answer) if len(answers) == 1 else None
        of_gold = brackets(gold) if len(golds) == 1 else None
        if (
            of_gold and of_gold[0] + of_gold[2] == "()"
        ):  # the gold is a point, for which a pair without brackets will do
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
        letters = {name.partition("_")[0] for name in names if name}  # x_1 and x_2 are roots in any order
        if all(names) and len(letters) > 1 and not any(related(item) for item in answers):
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
        """The members of a list, where a plus-minus sign stands for two."""
        items = []
        for item in split(text, ","):
            signs = PLUS_MINUS.findall(item)
            pair = brackets(item)
            # (\pm 3,0) are two points, but (\pm 3,\pm 4) may be two or four
            if signs and (not pair or pair[0] == "(" and len(signs) == 1):
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
        """The right sides of assignments, those of coordinates in the order x, y, z; other items as they are."""
        names = [self._name(item) for item in items]
        if not all(names):
            return items
        if len(set(names)) == len(names) and set(names) <= set("xyz"):
            items = [item for _, item in sorted(zip(names, items, strict=True), key=lambda pair: pair[0])]
        return [split(item, "=")[-1] for item in items]

    def _ordered(self, answers: list[str], golds: list[str]) -> bool | None:
        if len(answers) != len(golds):
            return False
        return three_valued([self.same(a, g) for a, g in zip(answers, golds, strict=True)], False)

    def _unordered(self, answers: list[str], golds: list[str]) -> bool | None:
        """Same members, whatever their order and however often they are named."""
        answers, golds = list(dict.fromkeys(answers)), list(dict.fromkeys(golds))
        if len(answers) > 64 or len(golds) > 64:
            return False
        shared = set(answers) & set(golds)
        rows = [[self.same(a, g) if a not in shared or g not in shared else a == g for g in golds] for a in answers]
        found = [three_valued(row, True) for row in rows]
        found += [three_valued([row[index] for row in rows], True) for index in range(len(golds))]
        return three_valued(found, False)

    def _single(self, answer: str, gold: str) -> bool | None:
        answer, gold = (BUILDER.sub(_condition, text) for text in (answer, gold))
        if answer == gold:
            return True
        cases = answer.split(r"\if"), gold.split(r"\if")
        if max(map(len, cases)) > 1:
            return self._ordered(*cases)
        if related(answer) or related(gold):
            return self._relations(answer, gold)
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
        if ":" in answer + gold and not (clock(answer) or clock(gold)):
            parts = split(answer, ":"), split(gold, ":")  # a ratio
            return self._ordered(*parts) if len(parts[0]) == len(parts[1]) > 1 else False
        return self.scalars.same(answer, gold)

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
            intervals = _interval(answer), _interval(gold)
            if intervals[0] and intervals[1]:
                names = {name for _, name in intervals if name}
                return self.same(intervals[0][0], intervals[1][0]) if len(names) == 1 else False
            # m \in [2, 3] against 2 <= m <= 3
            ours, theirs = (m[2].strip() if m else text for m, text in zip(membership, (answer, gold), strict=True))
            return self.leaf(ours, theirs)
        if not ours or not theirs or len(ours) == len(theirs) == 1:
            return False  # a sign of equality with nothing on one side
        if len(theirs) == 1:
            # a value is asked for: x = 5 is 5, 2+3 = 5 is 5, 7 = 5 is not
            values = ours[1:] if LETTER.search(ours[0]) else ours
            cores = [quantity(value).core for value in values]
            if LETTER.search(cores[-1]) and not LETTER.search(quantity(gold).core):
                return False
            if rational_or_none(gold) == 0 and not self._name(answer):
                return False  # an equation in standard form is not the answer 0
            checked = values[-1:] if LETTER.search(ours[0]) and any(map(LETTER.search, cores)) else values
            return three_valued([self.same(value, gold) for value in checked], False)
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


def _interval(text: str) -> tuple[str, str] | None:
    r"""(interval, letter) of an inequality such as `2 < x \le 3` or `x \ge 2`; (interval, "") of an interval."""
    pair = brackets(text)
    if pair and pair[0] != r"\{" and len(split(pair[1], ",")) == 2:
        return text, ""
    parts = re.split(r"(<|>|\\le(?![A-Za-z]) ?|\\ge(?![A-Za-z]) ?)", text)
    if len(parts) not in (3, 5) or any(LETTER.search(part) for part in parts[0:1] + parts[4:5] if len(parts) == 5):
        return None
    if len(parts) == 5 and {parts[1][:2], parts[3][:2]} - {"<", "\\l"}:
        parts = [part if index % 2 == 0 else MIRROR[part.strip()] for index, part in enumerate(parts)][::-1]
    if len(parts) == 3 and not BARE_NAME.fullmatch(parts[0]):
        parts = [parts[2], MIRROR[parts[1].strip()], parts[0]]
    signs = [part.strip() for part in parts[1::2]]
    if len(parts) == 3:
        name, value = parts[0], parts[2]
        if LETTER.search(value) or not BARE_NAME.fullmatch(name):
            return None
        strict = "<" in signs[0] or ">" in signs[0]
        if signs[0] in ("<", r"\le"):
            return rf"(-\infty,{value}" + (")" if strict else "]"), name
        return ("(" if strict else "[") + rf"{value},\infty)", name
    if not BARE_NAME.fullmatch(parts[2]) or set(signs) - {"<", r"\le"}:
        return None
    return ("(" if signs[0] == "<" else "[") + f"{parts[0]},{parts[4]}" + (")" if signs[1] == "<" else "]"), parts[2]


def _condition(builder: re.Match) -> str:
    """What a set-builder requires: {x | x > 2} says no more than x > 2."""
    return builder[2] if RELATION.search(builder[2]) and builder[1] in builder[2] else builder[0]


def _without_estimate(text: str) -> str:
    r"""The exact side of \approx (1/3 \approx 0.33 is 1/3), or the estimate of a name (x \approx 11 is 11)."""
    parts = APPROXIMATELY.split(text)
    if len(parts) == 1:
        return text
    exact = parts[0].strip()
    return exact if exact and not NAME.fullmatch(exact) else parts[1].strip()


@lru_cache(maxsize=4096)
def canonical(text: str) -> str:
    """`normalize` with a memory, since every gold comes once per completion of its group."""
    return normalize(text)
