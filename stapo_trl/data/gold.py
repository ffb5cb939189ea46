"""The gold answer of a row as text, from all the ways in which data sets store it."""

import ast
import math
import numbers
import re

from ..rewards.answer import gold_answer


QUOTED = r"""(?:'(?:[^'\\]|\\.)*+'|"(?:[^"\\]|\\.)*+")"""
LIST_OF_TEXTS = re.compile(rf"\s*\[\s*{QUOTED}(?:\s*,\s*{QUOTED})*+\s*\]\s*")  # "['70']"
THOUSANDS = re.compile(r"(-?)\$?(\d{1,3}(?:,\d{3})+)(?![\d,])")
EXACT = 2**53  # beyond, a float does not hold every integer


def gold_text(value: object) -> str | None:
    r"""
    The answer in a gold column.

    Worked solutions are reduced to their last box, or to what stands behind their last `####` (without thousands
    commas). Several answers in a list are all wanted: they are joined with commas. Leading zeros stay.

    Args:
        value (`object`):
            What the column holds: text, a number, or a list.

    Returns:
        `str`, or `None` where nothing can be graded: missing or empty golds, booleans, NaN, sentences, unbalanced
        formulas, and floats beyond 2^53, which may have lost digits.

    Example:

    ```python
    >>> [gold_text(value) for value in (27.0, "025", "48/2 = 24.\n#### 1,080", "So $\\boxed{\\frac12}$.", ["70"], None)]
    ['27', '025', '1080', '\\frac12', '70', None]
    ```
    """
    if hasattr(value, "tolist"):  # numpy
        value = value.tolist()
    if isinstance(value, str) and LIST_OF_TEXTS.fullmatch(value):
        value = ast.literal_eval(value.strip())
    if isinstance(value, list | tuple):
        answers = [gold_text(item) for item in value]
        return ", ".join(answers) if answers and None not in answers else None
    if isinstance(value, bool) or not isinstance(value, str | numbers.Number):
        return None
    if isinstance(value, float):
        if not math.isfinite(value) or abs(value) > EXACT:
            return None
        value = int(value) if value.is_integer() else value
    text = str(value).strip()
    answer = gold_answer(text)
    if answer is None:
        return None
    if "####" in text and answer in text.rpartition("####")[2]:
        answer = THOUSANDS.sub(lambda found: found[1] + found[2].replace(",", ""), answer)
    answer = answer.strip()
    if answer.count("$") == 2 and answer[0] == answer[-1] == "$":
        answer = answer[1:-1].strip()
    return answer or None
