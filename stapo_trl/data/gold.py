"""The gold answer of a row as text, in all the ways in which data sets store it."""

import ast
import math
import re
from decimal import Decimal
from numbers import Real

from ..rewards.completion import shorten
from ..rewards.verifier.answer import gold_answer


QUOTED = r"""(?:'(?:[^'\\]|\\.)*+'|"(?:[^"\\]|\\.)*+")"""
LIST_OF_TEXTS = re.compile(rf"\[\s*{QUOTED}(?:\s*,\s*{QUOTED})*+\s*\]")  # "['70']"
THOUSANDS = re.compile(r"(?<![\d,])(\d{1,3}(?:,\d{3})+)(?![\d,])")
EXACT = 2**53  # from here on, a float may stand for its neighbour


def gold_text(value: object) -> str:
    r"""
    The answer in a gold column, without dollars around it; `ValueError` with the reason if nothing can be graded against it.

    Worked solutions are reduced to their last box, or to what follows their last `####` (without thousands commas).
    Several answers in a list are all wanted: they are joined with commas. Leading zeros stay.

    Example:

    ```python
    >>> [gold_text(value) for value in (27.0, "025", "48/2 = 24.\n#### 1,080", r"So $\boxed{\frac12}$.", ["70"], "$2n$")]
    ['27', '025', '1080', '\\frac12', '70', '2n']
    ```
    """
    if hasattr(value, "tolist"):  # numpy
        value = value.tolist()
    if isinstance(value, str):
        value = value.strip()
        if LIST_OF_TEXTS.fullmatch(value):
            value = ast.literal_eval(value)
    if value is None or isinstance(value, str | list | tuple) and not value:
        raise ValueError("there is no gold answer")
    if isinstance(value, list | tuple):
        return ", ".join(map(gold_text, value))
    if isinstance(value, bool) or not isinstance(value, str | Real | Decimal):
        raise ValueError(f"the gold answer is neither text nor a number: {shorten(value)}")
    if isinstance(value, float):
        if math.isnan(value):
            raise ValueError("there is no gold answer")
        if abs(value) >= EXACT:
            raise ValueError(f"the gold answer {value} is a float too large to hold every digit (store it as text)")
        value = int(value) if value.is_integer() else value
    text = str(value)
    answer = (gold_answer(text) or "").strip()
    if not answer:
        raise ValueError(f"no answer can be read from the gold {shorten(value)}")
    if "####" in text and "box" not in text:
        answer = THOUSANDS.sub(lambda number: number[1].replace(",", ""), answer)
    if answer.count("$") == 2 and answer[0] == answer[-1] == "$":
        answer = answer[1:-1].strip()
    return answer
