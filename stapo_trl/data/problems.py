"""Brings the rows of any data set into one schema: `prompt`, `solution`, `problem_id` and `source`."""

import logging
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from datasets import Dataset, Features, IterableDataset, List, Value
from tqdm.auto import tqdm

from ..rewards import grade
from .identity import fingerprint
from .prompt import BOXED_INSTRUCTION, PromptFormat, bare_problem, check_format, format_prompt
from .reading.columns import Columns, find_columns
from .reading.rows import Row, read_row


logger = logging.getLogger(__name__)
MAX_NAMED = 5  # rows in a message
MESSAGES = List({"role": Value("string"), "content": Value("string")})


def load_problems(
    rows: Dataset | IterableDataset,
    source: str,
    columns: Mapping[str, str] | None = None,
    prompt_format: PromptFormat = "chat",
    instruction: str | None = BOXED_INSTRUCTION,
    unusable: Literal["raise", "drop"] = "raise",
) -> Dataset | IterableDataset:
    """
    Bring rows of any known shape into one schema: distinct problems whose golds are graded as equal to themselves.

    Args:
        rows (`Dataset` or `IterableDataset`):
            A problem and a gold answer each, under any of the usual names. A stream is converted while it is read: copies
            of a problem stay, and golds are read but not graded.
        source (`str`):
            Name of the data set.
        columns (`Mapping[str, str]`, *optional*):
            The columns of `"problem"` and `"solution"` if they have unusual names, such as
            `{"problem": "extra_info.text"}`.
        prompt_format (`str`, defaults to `"chat"`):
            `"chat"` or `"plain"`; see [`format_prompt`].
        instruction (`str`, *optional*, defaults to `BOXED_INSTRUCTION`):
            Replaces known instructions around the problem. `None` leaves the text as it is.
        unusable (`str`, defaults to `"raise"`):
            `"raise"` refuses rows without a problem or a usable gold, and problems whose copies have different golds;
            `"drop"` drops them.

    Returns:
        `Dataset` or `IterableDataset`: columns `prompt`, `solution` (text), `problem_id` (the same for the same problem in
        every copy) and `source`, in the order of the rows. What was dropped is logged, and written in `info.description`.

    Raises:
        `ValueError`: for unknown columns, and for unusable rows, naming their numbers.

    Example:

    ```python
    >>> rows = Dataset.from_dict({"question": ["1+1?", "1 + 1?"], "answer": [2.0, 2.0]})
    >>> problems = load_problems(rows, "sums", prompt_format="plain", instruction=None)
    >>> problems[:]
    {'prompt': ['1+1?'], 'solution': ['2'], 'problem_id': ['sums-6a9e606bb00c9d3a'], 'source': ['sums']}
    >>> problems.info.description
    'sums: 2 rows, 1 copy of another, 1 problem'
    ```
    """
    check_format(prompt_format)
    if isinstance(rows, dict):
        raise ValueError(f"`rows` is one split of a data set, got all of {list(rows)}.")
    if unusable not in ("raise", "drop"):
        raise ValueError(f"`unusable` must be 'raise' or 'drop', got {unusable!r}.")
    rows = rows.with_format(None)
    first = next(iter(rows), None)
    if first is None:
        raise ValueError(f"{source} has no rows.")
    found = find_columns(rows.features or {}, first, columns)
    top = found.gold[0]
    gold = (rows.features or {}).get(top)
    if (exact := _short_floats_as_text(gold)) != gold:
        rows = rows.cast_column(top, exact)  # or 0.1 becomes 0.10000000149011612
    settings = {
        "source": source,
        "columns": found,
        "prompt_format": prompt_format,
        "instruction": instruction,
        "refuse": unusable == "raise",
    }
    features = Features(
        prompt=MESSAGES if prompt_format == "chat" else Value("string"),
        solution=Value("string"),
        problem_id=Value("string"),
        source=Value("string"),
    )
    if isinstance(rows, IterableDataset):
        return rows.map(
            _write,
            with_indices=True,
            batched=True,
            batch_size=1,  # so that no row is read before it is needed
            remove_columns=list(rows.features or first),
            features=features,
            fn_kwargs=settings,
        )
    survey = survey_rows(rows, found)
    if unusable == "raise" and survey.flaws:
        raise ValueError(f"{source}: {survey}. Fix these rows, or drop them with unusable='drop'.")
    logger.log(logging.WARNING if survey.flaws else logging.INFO, "%s: %s.", source, survey)
    if not survey.kept:
        raise ValueError(f"{source} has no usable row: {survey}.")
    problems = rows.select_columns(found.tops).select(survey.kept)
    problems = problems.map(
        _write,
        with_indices=True,
        batched=True,
        remove_columns=found.tops,
        features=features,
        fn_kwargs=settings,
        load_from_cache_file=False,  # another version may have read the same golds differently
        desc=f"Writing {source}",
    )
    problems.info.description = f"{source}: {survey}"
    return problems


def _short_floats_as_text(feature: object) -> object:
    """The type of a column with text for 32-bit floats, whose decimal digits Python does not show."""
    if isinstance(feature, Value) and feature.dtype == "float32":
        return Value("string")
    if isinstance(feature, Mapping):
        return {name: _short_floats_as_text(inner) for name, inner in feature.items()}
    return List(_short_floats_as_text(feature.feature)) if isinstance(feature, List) else feature


@dataclass
class Survey:
    """The rows of a data set: their count, the numbers of those to use, and the flaws of the unusable ones by number."""

    rows: int
    kept: list[int] = field(default_factory=list)
    flaws: dict[int, str] = field(default_factory=dict)

    def __str__(self) -> str:
        copies = self.rows - len(self.kept) - len(self.flaws)
        parts = [f"{self.rows:,} row{'s' * (self.rows != 1)}"]
        if copies:
            parts.append(f"{copies:,} {'copy of another' if copies == 1 else 'copies of others'}")
        if self.flaws:
            named = [f"row {row}: {flaw}" for row, flaw in sorted(self.flaws.items())[:MAX_NAMED]]
            more = "; ..." if len(self.flaws) > MAX_NAMED else ""
            parts.append(f"{len(self.flaws):,} unusable ({'; '.join(named)}{more})")
        return ", ".join([*parts, f"{len(self.kept):,} problem{'s' * (len(self.kept) != 1)}"])


def survey_rows(rows: Dataset, columns: Columns) -> Survey:
    """Find copies and unusable rows, without keeping their texts."""
    survey = Survey(len(rows))
    rows = rows.select_columns(columns.tops)
    # Exact copies first, by hashes of 64 bits: DAPO's file has a hundred of each, and normalising them all takes longer
    hashes = np.empty(len(rows), dtype=np.int64)
    for number, values in enumerate(_iterate(rows, "Looking for copies")):
        hashes[number] = hash(tuple(map(_frozen, values)))
    numbers = np.sort(np.unique(hashes, return_index=True)[1])

    first: dict[str, tuple[int, str]] = {}  # fingerprint: number of the first row, its gold
    other_golds: dict[str, set[str]] = {}
    for number, values in zip(numbers.tolist(), _iterate(rows.select(numbers), "Reading golds"), strict=True):
        try:
            found = read_row(dict(zip(columns.tops, values, strict=True)), columns)
        except ValueError as flaw:
            survey.flaws[number] = str(flaw)
            continue
        name = fingerprint(found.problem)
        if first.setdefault(name, (number, found.solution))[1] != found.solution:
            other_golds.setdefault(name, set()).add(found.solution)

    golds = {gold for _, gold in first.values()}
    unequal = _unequal([(gold, gold) for gold in golds])
    unequal |= _unequal([(other, first[name][1]) for name, others in other_golds.items() for other in others])
    for name, (number, gold) in first.items():
        conflicting = sorted(other for other in other_golds.get(name, ()) if (other, gold) in unequal)
        if (gold, gold) in unequal:
            survey.flaws[number] = f"the gold {gold!r} is not graded as equal to itself"
        elif conflicting:
            survey.flaws[number] = f"copies of the problem have different golds, {gold!r} and {str(conflicting)[1:-1]}"
        else:
            survey.kept.append(number)
    return survey


def _unequal(pairs: list[tuple[str, str]]) -> set[tuple[str, str]]:
    """The pairs of answer and gold that the verifier does not grade as correct."""
    verdicts = grade([f"\\boxed{{{answer}}}" for answer, _ in pairs], [gold for _, gold in pairs])
    return {pair for pair, verdict in zip(pairs, verdicts, strict=True) if not verdict.correct}


def _write(
    batch: dict[str, list],
    numbers: list[int],
    source: str,
    columns: Columns,
    prompt_format: PromptFormat,
    instruction: str | None,
    refuse: bool,
) -> dict[str, list]:
    """Rows in the schema. The unusable ones of a stream turn up here."""
    written = {"prompt": [], "solution": [], "problem_id": [], "source": []}
    for number, *values in zip(numbers, *batch.values(), strict=True):
        try:
            row = read_row(dict(zip(batch, values, strict=True)), columns)
        except ValueError as flaw:
            if refuse:
                raise ValueError(f"{source}: row {number}: {flaw}. Fix it, or drop it with unusable='drop'.") from flaw
            continue
        written["prompt"].append(_prompt(row, prompt_format, instruction))
        written["solution"].append(row.solution)
        written["problem_id"].append(f"{source}-{fingerprint(row.problem)}")
        written["source"].append(source)
    return written


def _prompt(row: Row, prompt_format: PromptFormat, instruction: str | None) -> list[dict] | str:
    if instruction is None:
        return format_prompt(row.problem, prompt_format, None, row.system)
    return format_prompt(bare_problem(row.problem), prompt_format, instruction, bare_problem(row.system or "") or None)


def _frozen(value: object) -> Hashable:
    if isinstance(value, dict):
        return tuple(map(_frozen, value.values()))
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


def _iterate(rows: Dataset, title: str) -> Iterator[tuple]:
    """The values of each row, with a progress bar on a terminal."""
    with tqdm(total=len(rows), desc=title, unit=" rows", disable=None) as bar:
        for batch in rows.iter(1000):
            values = list(zip(*batch.values(), strict=True))
            yield from values
            bar.update(len(values))
