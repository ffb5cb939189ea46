"""When two problems are the same: by their text, whatever a copy did to its typography and white space."""

import hashlib
import re
import unicodedata

from .prompt import bare_problem


TYPOGRAPHY = str.maketrans("‘’“”‐‑‒–—−", "''\"\"------", "\u200b\u200c\u200d\u2060\ufeff\u00ad")
BESIDE_SYMBOL = re.compile(r"(?<!\w) | (?!\w)", re.ASCII)


def normalise(problem: str) -> str:
    r"""
    What all copies of a problem share: a key without typography, compatibility characters and white space.

    Case counts, and so does a space between two words or numbers.

    Example:

    ```python
    >>> normalise("Let $x = 1 1/2$.\n Find\u00a0$x – 1$."), normalise("$1 1/2$") == normalise("$11/2$")
    ('Let$x=1 1/2$.Find$x-1$.', False)
    >>> normalise("$x²$")
    '$x^2$'
    ```
    """
    if not problem.isascii():
        raised = ("^" + char if unicodedata.decomposition(char).startswith("<super>") else char for char in problem)
        problem = unicodedata.normalize("NFKC", "".join(raised).translate(TYPOGRAPHY))
    return BESIDE_SYMBOL.sub("", " ".join(problem.split()))


def fingerprint(problem: str) -> str:
    """16 hexadecimal digits that name a problem in every data set, with or without a known instruction around it."""
    return hashlib.blake2b(normalise(bare_problem(problem)).encode(), digest_size=8).hexdigest()
