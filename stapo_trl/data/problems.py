"""From the rows of any data set to `prompt`, `solution`, `problem_id` and `source`: one schema, checked on the way."""

import hashlib
import logging
import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from datasets import Dataset, Features, IterableDataset, List, Value
from tqdm.auto import tqdm

from ..rewards import grade
from ..rewards.completion import completion_text
from .columns import Columns, find_columns, value_at
from .gold import gold_text
from .prompt import BOXED_INSTRUCTION, PromptFormat, bare_problem, check_format, format_prompt


logger = logging.getLogger(__name__)
BATCH = 1000
SHOWN = 5  # offenders named in a message
TYPOGRAPHY = str.maketrans("‘’“”‐‑‒–—−", "''\"\"------", "\u200b\u200c\u200d\u2060\ufeff\u00ad")


def normalise(problem: str) -> str:
    """
    What two copies of a problem share: typography, compatibility characters and white space do not count.

    Args:
        problem (`str`):
            Text of a problem.

    Returns:
        `str`: a key, not a readable text. Case counts, and so do spaces between words and numbers.

    Example:

    ```python
    >>> normalise("Let $x = 1 1/2$.\\n Find\\u00a0x – 1") == normalise("Let $x=1 1/2$. Find x - 1")
    True
    >>> normalise("$x²$"), normalise("$1 1/2$") == normalise("$11/2$")
    ('$x^2$', False)
    ```
    """
    if not problem.isascii():
        problem = "".join("^" + c if unicodedata.decomposition(c).startswith("<super>") else c for c in problem)
        problem = unicodedata.normalize("NFKC", problem.translate(TYPOGRAPHY))
    return re.sub(r"\s+", " ", re.sub(r"(?<!\w)\s+|\s+(?!\w)", "", problem))


def digest(problem: str) -> str:
    """The name of a problem in every data set that has it: 16 hexadecimal digits of its normalised text."""
    return hashlib.blake2b(normalise(bare_problem(problem)).encode(), digest_size=8).hexdigest()


@dataclass
class Survey:
    """
    What was found in the rows of a map-style data set.

    Args:
        rows (`int`):
            Rows seen.
        distinct (`int`):
            Different problems among the rows that have a problem and a gold.
        kept (`list[int]`):
            Numbers of the rows to train on, in order: the first copy of every usable problem.
        flaws (`dict[int, str]`):
            Numbers of the unusable rows, and why.
    """

    rows: int
    distinct: int = 0
    kept: list[int] = field(default_factory=list)
    flaws: dict[int, str] = field(default_factory=dict)

    def __str__(self) -> str:
        text = f"{self.rows:,} rows, {self.distinct:,} distinct problems, {len(self.kept):,} usable"
        if self.flaws:
            shown = [f"row {row}: {flaw}" for row, flaw in sorted(self.flaws.items())[:SHOWN]]
            more = ["..."] if len(self.flaws) > SHOWN else []
            text += f"; {len(self.flaws):,} rows cannot be used: {'; '.join(shown + more)}"
        return text


def load_problems(
    rows: Dataset | IterableDataset,
    source: str,
    columns: Mapping[str, str] | None = None,
    prompt_format: PromptFormat = "chat",
    instruction: str | None = BOXED_INSTRUCTION,
    unusable: Literal["raise", "drop"] = "raise",
) -> Dataset | IterableDataset:
    r"""
    Bring rows of any known shape into the one schema: distinct problems whose golds grade as right against themselves.

    Args:
        rows (`Dataset` or `IterableDataset`):
            A problem and a gold answer each, under one of the usual names. A stream is converted row by row while it
            is read; its repeats stay, and its golds are not graded.
        source (`str`):
            Name of the data set.
        columns (`Mapping[str, str]`, *optional*):
            Where `"problem"` and `"solution"` are, if the usual names do not tell: `{"problem": "extra_info.text"}`.
        prompt_format (`str`, defaults to `"chat"`):
            `"chat"` or `"plain"`; see [`format_prompt`].
        instruction (`str`, *optional*, defaults to `BOXED_INSTRUCTION`):
            Replaces known instructions around the problem. `None` leaves the text as it is.
        unusable (`str`, defaults to `"raise"`):
            `"raise"` refuses rows without a problem or a usable gold, and problems whose copies have different golds;
            `"drop"` leaves them out and logs how many.

    Returns:
        `Dataset` or `IterableDataset`: columns `prompt`, `solution` (text), `problem_id` (the same for the same
        problem in every copy) and `source`, in the order of the rows.

    Raises:
        `ValueError`: for unknown columns, and for unusable rows, by their numbers.

    Example:

    ```python
    >>> rows = Dataset.from_dict({"question": ["1+1?", "1 + 1?"], "answer": [2.0, 2.0]})
    >>> load_problems(rows, "sums", prompt_format="plain", instruction=None)[:]
    {'prompt': ['1+1?'], 'solution': ['2'], 'problem_id': ['sums-ad61a0d3f3b2f3b1'], 'source': ['sums']}
    ```
    """
    check_format(prompt_format)
    if unusable not in ("raise", "drop"):
        raise ValueError(f"`unusable` must be 'raise' or 'drop', got {unusable!r}.")
    first = next(iter(rows), None)
    if first is None:
        raise ValueError(f"{source} has no rows.")
    found = find_columns(rows.features or {}, first, columns)
    message = {"role": Value("string"), "content": Value("string")}
    features = Features(
        {"prompt": List(message) if prompt_format == "chat" else Value("string")}
        | {name: Value("string") for name in ("solution", "problem_id", "source")}
    )
    settings = {"source": source, "columns": found, "prompt_format": prompt_format, "instruction": instruction}
    if isinstance(rows, IterableDataset):
        return rows.map(
            _convert,
            with_indices=True,
            batched=True,
            batch_size=1,  # no row is read before it is wanted
            remove_columns=list(rows.features or first),
            features=features,
            fn_kwargs=settings | {"refuse": unusable == "raise"},
        )
    result = survey(rows, found)
    if unusable == "raise" and result.flaws:
        raise ValueError(f"{source}: {result}. Mend them, or leave them out with unusable='drop'.")
    logger.log(logging.INFO if len(result.kept) == result.rows else logging.WARNING, "%s: %s.", source, result)
    rows = rows.select_columns(found.top).select(result.kept)
    return rows.map(
        _convert,
        with_indices=True,
        batched=True,
        remove_columns=found.top,
        features=features,
        fn_kwargs=settings,
        load_from_cache_file=False,  # another version may read golds in another way
        desc=f"Writing {source}",
    )


def survey(rows: Dataset, columns: Columns) -> Survey:
    """
    Find repeats and unusable rows, without holding the texts.

    Args:
        rows (`Dataset`):
            Rows of any known shape.
        columns ([`Columns`]):
            Where problem and gold are.

    Returns:
        [`Survey`]
    """
    result = Survey(len(rows))
    rows = rows.select_columns(columns.top)
    # Exact copies first: 64 bits a row tell them apart, and DAPO's file has a hundred of each
    hashes = np.empty(len(rows), dtype=np.int64)
    for index, row in enumerate(_progress(rows, "Looking for copies")):
        values = [value_at(row, path) for path in (columns.problem, *columns.golds)]
        hashes[index] = hash(tuple(map(str, values)))
    distinct_rows = np.sort(np.unique(hashes, return_index=True)[1])

    firsts: dict[str, tuple[int, str]] = {}  # digest of the problem: its first row and gold
    others: dict[str, set[str]] = {}
    for index, row in zip(distinct_rows.tolist(), _progress(rows.select(distinct_rows), "Reading golds"), strict=True):
        _, problem, gold, flaw = read_row(row, columns)
        if flaw:
            result.flaws[index] = flaw
            continue
        name = digest(problem)
        _, first_gold = firsts.setdefault(name, (index, gold))
        if gold != first_gold:
            others.setdefault(name, set()).add(gold)
    result.distinct = len(firsts)

    golds = {gold: None for _, gold in firsts.values()}
    wrong = _unequal([(gold, gold) for gold in golds])
    conflicts = _unequal([(gold, firsts[name][1]) for name, golds in others.items() for gold in golds])
    for name, (index, gold) in firsts.items():
        different = [other for other in others.get(name, ()) if (other, gold) in conflicts]
        if (gold, gold) in wrong:
            result.flaws[index] = f"the gold {gold!r} does not grade as equal to itself"
        elif different:
            result.flaws[index] = (
                f"copies of the problem have the golds {gold!r} and {', '.join(map(repr, different))}"
            )
        else:
            result.kept.append(index)
    return result


def _unequal(pairs: list[tuple[str, str]]) -> set[tuple[str, str]]:
    """The pairs of (answer, gold) that the verifier of the reward does not grade as correct."""
    verdicts = grade([f"\\boxed{{{answer}}}" for answer, _ in pairs], [gold for _, gold in pairs])
    return {pair for pair, verdict in zip(pairs, verdicts, strict=True) if not verdict.correct}


def read_row(row: Mapping, columns: Columns) -> tuple[str | None, str | None, str | None, str | None]:
    """System message, problem and gold of a row, and why it cannot be used if it cannot."""
    system, problem = _question(value_at(row, columns.problem))
    if not problem or not problem.strip():
        return system, None, None, "no problem, or a chat of more than one question"
    value = value_at(row, columns.golds[0])
    gold = gold_text(value)
    for path in columns.golds[1:]:
        worked = value_at(row, path)
        if gold is None and isinstance(worked, str) and re.search(r"box|####", worked):
            gold = gold_text(worked)
    shown = f"the gold {_shorten(value)} cannot be graded" if value not in (None, "", []) else "no gold"
    return system, problem, gold, None if gold is not None else shown


def _question(value: object) -> tuple[str | None, str | None]:
    """System message and question of a prompt, chat or plain."""
    if isinstance(value, str):
        return None, value
    if not isinstance(value, list) or not all(isinstance(message, Mapping) for message in value):
        return None, None
    turns = [(m.get("role") or m.get("from") or "user", m.get("content") or m.get("value")) for m in value]
    said = {role: [completion_text([{"content": c}]) for r, c in turns if r == role] for role, _ in turns}
    asked = said.get("user", []) + said.get("human", [])
    return "\n".join(said.get("system", [])) or None, asked[0] if len(asked) == 1 else None


def _shorten(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _convert(
    batch: dict[str, list],
    indices: list[int],
    source: str,
    columns: Columns,
    prompt_format: PromptFormat,
    instruction: str | None,
    refuse: bool = True,
) -> dict[str, list]:
    out = {"prompt": [], "solution": [], "problem_id": [], "source": []}
    for position, index in enumerate(indices):
        row = {name: values[position] for name, values in batch.items()}
        system, problem, gold, flaw = read_row(row, columns)
        if flaw and refuse:
            raise ValueError(f"{source}: row {index}: {flaw}. Mend it, or leave it out with unusable='drop'.")
        if flaw:
            continue
        if instruction is not None:
            problem, system = bare_problem(problem), bare_problem(system or "") or None
        out["prompt"].append(format_prompt(problem, prompt_format, instruction, system))
        out["solution"].append(gold)
        out["problem_id"].append(f"{source}-{digest(problem)}")
        out["source"].append(source)
    return out


def _progress(rows: Dataset, title: str):
    """Rows with a bar, on a terminal."""
    with tqdm(total=len(rows), desc=title, unit="rows", disable=None) as bar:
        for batch in rows.iter(BATCH):
            size = len(next(iter(batch.values())))
            for position in range(size):
                yield {name: values[position] for name, values in batch.items()}
            bar.update(size)
