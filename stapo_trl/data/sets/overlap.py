"""Which problems of a data set belong to an evaluation set."""

import json
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from ..identity import fingerprint


FILE = Path(__file__).with_name("fingerprints.json")


@cache
def benchmark_fingerprints() -> dict[str, frozenset[str]]:
    """Fingerprints of the published problems of each evaluation set, so that nothing has to be downloaded."""
    return {name: frozenset(prints) for name, prints in json.loads(FILE.read_text()).items()}


def count_overlap(problems: Iterable[str]) -> dict[str, int]:
    """
    How many different problems belong to each evaluation set, by their normalised text without known instructions.

    Example:

    ```python
    >>> bases = "Find the sum of all integer bases $b>9$ for which $17_b$ is a divisor of $97_b.$"
    >>> count_overlap([bases, "Find  the sum of all integer bases $b > 9$ for which $17_b$ is a divisor of $97_b.$"])
    {'aime24': 0, 'aime25': 1, 'amc23': 0, 'math500': 0, 'minerva': 0, 'olympiadbench': 0}
    ```
    """
    found = {fingerprint(problem) for problem in problems}
    return {name: len(found & prints) for name, prints in benchmark_fingerprints().items()}
