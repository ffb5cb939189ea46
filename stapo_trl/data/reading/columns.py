"""Which columns of a data set hold the problem and the gold answer, by their usual names, flat or nested."""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from datasets import ClassLabel


# In order of preference, compared without case and punctuation; a worked solution comes last
PROBLEM_NAMES = (
    "problem",
    "question",
    "raw_problem",
    "prompt",
    "instruction",
    "input",
    "query",
    "question_stem",
    "messages",
    "conversations",
)
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
    "answer_key",
    "correct",
    "correct_option",
    "answer_index",
    "answer_idx",
    "output",
)
# Beside the problem, these hold more of it
CONTEXT_NAMES = ("context", "passage", "body")
CHOICES_NAMES = ("choices", "options")
LETTER_NAMES = ("A", "B", "C", "D", "E", "F", "G", "H", "I", "J")  # a column for each choice
# Which choice is right, where the gold does not say it
KEY_NAMES = ("answer_key", "label", "correct", "correct_option", "answer_index", "answer_idx")
POSITION_NAMES = ("answer_index", "answer_idx")
JSON_ROW = "(row)"  # the column of a JSON file
Path = tuple[str, ...]


@dataclass(frozen=True)
class Columns:
    """
    Paths of the problem, of the gold, and of a worked solution that stands in where the gold is unusable; of texts that
    come before the problem, of its choices, and of columns that may tell the right one. `positions` are those whose
    numbers count the choices.
    """

    problem: Path
    gold: Path
    worked: Path | None = None
    contexts: tuple[Path, ...] = ()
    choices: tuple[Path, ...] = ()
    keys: tuple[Path, ...] = ()
    positions: frozenset[Path] = frozenset()

    @property
    def tops(self) -> list[str]:
        """The columns of the table to read."""
        paths = (self.problem, self.gold, self.worked, *self.contexts, *self.choices, *self.keys)
        return list(dict.fromkeys(path[0] for path in paths if path))


def find_columns(features: Mapping, row: Mapping, mapping: Mapping[str, str] | None = None) -> Columns:
    """
    The columns that hold problem and gold, by the `features` of a data set (empty if unknown) and one of its rows.

    `mapping` has the user's names for `"problem"` and `"solution"`, where dots lead into nested columns. Raises
    `ValueError` naming the columns seen and wanted.
    """
    paths, class_labels = _paths(features, row)
    mapping = dict(mapping or {})
    if unknown := mapping.keys() - {"problem", "solution"}:
        raise ValueError(f"`columns` maps 'problem' and 'solution', got {sorted(unknown)}.")
    problem = _named(paths, mapping.get("problem")) or _first(paths, PROBLEM_NAMES)
    beside = [path for path in paths if problem and _place(path) == _place(problem)]
    letters = tuple(path for path in beside if _last(path) in LETTER_NAMES)
    choices = tuple(path for path in beside if _plain(_last(path)) in CHOICES_NAMES)
    if len(letters) > 2 and not choices:
        choices = letters
    if choices:
        paths = [*paths, *class_labels]
    gold = _named(paths, mapping.get("solution")) or _first(paths, GOLD_NAMES)
    for role, path, names in (("problem", problem, PROBLEM_NAMES), ("solution", gold, GOLD_NAMES)):
        if path is None:
            raise ValueError(
                f"No column holds the {role}: seen are {_written(paths)}, wanted is one of {list(names)}, at the top or "
                f"nested. Name it with columns={{{role!r}: '...'}}, or --{role}_column on the command line."
            )
    worked = None if "solution" in mapping else _first(paths, ("solution",))
    context_names = (*CONTEXT_NAMES, "input") if _plain(_last(problem)) == "instruction" else CONTEXT_NAMES
    keys = [_first([path for path in paths if _place(path) == _place(problem)], (name,)) for name in KEY_NAMES]
    positions = {path for path in paths if _plain(_last(path)) in map(_plain, POSITION_NAMES)}
    return Columns(
        problem,
        gold,
        worked if worked != gold else None,
        tuple(path for path in beside if _plain(_last(path)) in context_names and path not in (problem, gold)),
        tuple(path for path in choices if path != gold),
        tuple(path for path in keys if path not in (None, gold, problem))
        if choices and "solution" not in mapping
        else (),
        frozenset(positions | set(class_labels)) if choices else frozenset(),
    )


def value_at(row: Mapping, path: Path) -> object:
    """What a row holds at a path, which may lead into JSON stored as text; `None` if it leads nowhere."""
    for name in path:
        row = _opened(row).get(name)
    return row


def open_row(row: Mapping) -> Mapping:
    """The columns of a row, also where the row is a line of JSON."""
    return json.loads(row[JSON_ROW]) if JSON_ROW in row else row


def _opened(value: object) -> Mapping:
    """The columns in a structure or in JSON text; none in anything else."""
    if isinstance(value, str) and value.startswith("{"):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return {}
    return value if isinstance(value, Mapping) else {}


def _paths(features: Mapping, row: Mapping) -> tuple[list[Path], list[Path]]:
    """All columns, the nested ones after those that hold them; and apart from them, those of class labels."""
    paths: dict[Path, None] = {}
    class_labels = []
    level = [((name,), features.get(name), row.get(name)) for name in (features or row)]
    while level:
        deeper = []
        for path, feature, value in level:
            if isinstance(feature, ClassLabel):
                class_labels.append(path)
                continue
            if path != (JSON_ROW,):
                paths[path] = None
            kinds, values = feature if isinstance(feature, Mapping) else {}, _opened(value)
            deeper += [((*path, name), kinds.get(name), values.get(name)) for name in kinds or values]
        level = deeper
    return list(paths), class_labels


def _last(path: Path) -> str:
    return path[-1].rpartition(".")[2]  # the names of a flattened table have dots


def _place(path: Path) -> str:
    return ".".join(path).rpartition(".")[0]


def _plain(name: str) -> str:
    return "".join(filter(str.isalnum, name.casefold()))


def _first(paths: list[Path], names: tuple[str, ...]) -> Path | None:
    for name in names:
        for path in paths:
            if _plain(_last(path)) == _plain(name):
                return path
    return None


def _named(paths: list[Path], name: str | None) -> Path | None:
    if name is None:
        return None
    for path in paths:
        if name in (".".join(path), ".".join(path[1:])):
            return path
    raise ValueError(f"There is no column {name!r}: seen are {_written(paths)}.")


def _written(paths: list[Path]) -> list[str]:
    return [".".join(path).removeprefix(f"{JSON_ROW}.") for path in paths]
