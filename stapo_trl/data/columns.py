"""Which columns of a data set hold the problem and the gold answer, by the names in use, flat or nested."""

from collections.abc import Mapping
from dataclasses import dataclass

from datasets import ClassLabel


# In order of preference, compared without case and punctuation; a worked solution is the last resort
PROBLEM_NAMES = ("problem", "question", "raw_problem", "prompt", "input", "query", "messages", "conversations")
GOLD_NAMES = (
    "answer",
    "final_answer",
    "ground_truth",
    "expected_answer",
    "gold_answer",
    "gold",
    "target",
    "reference_answer",
    "correct_answer",
    "answers",
    "gt",
    "label",
    "solution",
)
Path = tuple[str, ...]


@dataclass(frozen=True)
class Columns:
    """
    Where the parts of a row are.

    Args:
        problem (`tuple[str, ...]`):
            Path of the problem: `("extra_info", "raw_problem")`.
        golds (`tuple[tuple[str, ...], ...]`):
            Paths of the gold answer: the next one is used where one has nothing to grade.
    """

    problem: Path
    golds: tuple[Path, ...]

    @property
    def top(self) -> list[str]:
        """The columns of the table that are read."""
        return list(dict.fromkeys(path[0] for path in (self.problem, *self.golds)))


def find_columns(features: Mapping, row: Mapping, mapping: Mapping[str, str] | None = None) -> Columns:
    """
    The columns that hold problem and gold.

    Args:
        features (`Mapping`):
            `features` of the data set; may be empty if they are unknown.
        row (`Mapping`):
            A row, for what the features do not tell.
        mapping (`Mapping[str, str]`, *optional*):
            Names chosen by the user, of `"problem"` and of `"solution"`; dots lead into nested columns.

    Returns:
        [`Columns`]

    Raises:
        `ValueError`: showing the columns seen and the ones wanted.

    Example:

    ```python
    >>> row = {"prompt": [{"role": "user", "content": "1+1?"}], "reward_model": {"ground_truth": "2"}}
    >>> find_columns({}, row)
    Columns(problem=('prompt',), golds=(('reward_model', 'ground_truth'),))
    ```
    """
    paths = _paths(features, row)
    mapping = dict(mapping or {})
    if unknown := mapping.keys() - {"problem", "solution"}:
        raise ValueError(f"`columns` maps 'problem' and 'solution', got {sorted(unknown)}.")
    problem = _named(paths, mapping.get("problem")) or _first(paths, PROBLEM_NAMES)
    golds = [_named(paths, mapping["solution"])] if "solution" in mapping else [_first(paths, GOLD_NAMES)]
    if problem is None or golds[0] is None:
        missing, names = ("problem", PROBLEM_NAMES) if problem is None else ("solution", GOLD_NAMES)
        kind = "problem" if problem is None else "gold answer"
        raise ValueError(
            f"No column holds the {kind}: seen are {['.'.join(path) for path in paths]}, wanted is one of "
            f"{list(names)}, at the top or nested. Name it: columns={{{missing!r}: '<column>'}}."
        )
    if "solution" not in mapping and (worked := _first(paths, ("solution",))) not in (None, *golds):
        golds.append(worked)
    return Columns(problem, tuple(golds))


def value_at(row: Mapping, path: Path) -> object:
    """What a row holds at a path, `None` if it leads nowhere."""
    for name in path:
        row = row.get(name) if isinstance(row, Mapping) else None
    return row


def _paths(features: Mapping, row: Mapping) -> list[Path]:
    """All columns, with those inside structures behind them: the shallow ones first."""
    paths: dict[Path, None] = {}
    level: list[tuple[Path, object, object]] = [
        ((name,), features.get(name), row.get(name)) for name in (features or row)
    ]
    while level:
        deeper = []
        for path, feature, value in level:
            if isinstance(feature, ClassLabel):
                continue
            paths[path] = None
            inner = feature if isinstance(feature, Mapping) else value if isinstance(value, Mapping) else {}
            for name in inner:
                child = feature.get(name) if isinstance(feature, Mapping) else None
                deeper.append(((*path, name), child, value.get(name) if isinstance(value, Mapping) else None))
        level = deeper
    return list(paths)


def _plain(name: str) -> str:
    return "".join(filter(str.isalnum, name.casefold()))


def _first(paths: list[Path], names: tuple[str, ...]) -> Path | None:
    for name in names:
        for path in paths:
            if _plain(path[-1].rpartition(".")[2]) == _plain(name):  # a flattened table has dots in its names
                return path
    return None


def _named(paths: list[Path], name: str | None) -> Path | None:
    if name is None:
        return None
    for path in paths:
        if name in (path[-1], ".".join(path)) and (len(path) == 1 or "." in name):
            return path
    raise ValueError(f"There is no column {name!r}: seen are {['.'.join(path) for path in paths]}.")
