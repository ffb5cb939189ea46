"""Benchmarks: a published one, the embedded task, or a local file."""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from datasets import Dataset

from ..data import BENCHMARKS, load_arithmetic, load_benchmark, load_local
from ..data.gold import gold_text
from ..data.problems import Survey, logger
from ..data.prompt import check_prompt
from ..data.reading.columns import open_row
from ..data.reading.source import open_rows
from .samples import Problem, Request


KNOWN = (*BENCHMARKS, "arithmetic")
COLUMNS = ("prompt", "solution", "problem_id", "source")


@dataclass(frozen=True)
class Benchmark:
    """
    Distinct problems under one name, of `rows` rows that may repeat them, of which `dropped` cannot be used; `revision`
    is a commit on the hub.
    """

    name: str
    problems: list[Problem]
    rows: int
    revision: str | None = None
    dropped: int = 0

    @property
    def checksum(self) -> str:
        """Checksum of all prompts and golds."""
        content = "".join(f"{problem.problem_id}{problem.checksum}{problem.solution}\n" for problem in self.problems)
        return hashlib.sha256(content.encode()).hexdigest()[:16]

    def requests(self, n: int) -> list[Request]:
        """Requests for n samples of every problem."""
        return [Request(problem, number) for problem in self.problems for number in range(n)]


def open_benchmarks(names: Sequence[str], *options, **more) -> list[Benchmark]:
    """Load several benchmarks: [`open_benchmark`]. Files of one name are named with the folders that tell them apart."""
    titles = [_title(name, 0) for name in names]
    for num_folders in range(1, 20):
        repeated = {title for title in titles if titles.count(title) > 1}
        titles = [
            _title(name, num_folders) if title in repeated else title
            for name, title in zip(names, titles, strict=True)
        ]
    return [open_benchmark(name, *options, title=title, **more) for name, title in zip(names, titles, strict=True)]


def _title(name: str, num_folders: int) -> str:
    """The name of a benchmark, with some of the folders that hold it if it is a file."""
    if name in KNOWN:
        return name
    path = Path(name).resolve() if num_folders else Path(Path(name).name)
    folders = path.parent.parts[1:]
    return "/".join((*folders[max(0, len(folders) - num_folders) :], path.name.partition(".")[0]))


def open_benchmark(
    name: str,
    data_dir: str | Path | None = None,
    size: int | None = None,
    unusable: Literal["raise", "drop"] = "raise",
    title: str | None = None,
) -> Benchmark:
    """
    Load a benchmark.

    Args:
        name (`str`):
            One of `stapo_trl.data.BENCHMARKS`, `"arithmetic"` (the embedded task's test split), or a local file. A
            file with the columns prompt, solution, problem_id and source is taken as it is; any other is read like a
            data set, and its prompts get the boxed instruction.
        data_dir (`str` or `Path`, *optional*):
            Folder with local copies of the published ones.
        size (`int`, *optional*):
            Only the first problems; of `"arithmetic"`, how many (500 by default).
        unusable (`str`, defaults to `"raise"`):
            `"raise"` refuses rows that cannot be used as prompts or graded; `"drop"` drops them, and counts them.
        title (`str`, *optional*):
            Name of the benchmark, by default that of the file.

    Raises:
        `ValueError`: for an unknown name, or rows that cannot be used as prompts or graded.
    """
    if unusable not in ("raise", "drop"):
        raise ValueError(f"`unusable` must be 'raise' or 'drop', got {unusable!r}.")
    if size is not None and size < 1:
        raise ValueError(f"`size` must be at least 1, got {size}.")
    if name == "arithmetic":
        dataset = load_arithmetic("test", size or 500)
    elif name in BENCHMARKS:
        dataset = load_benchmark(name, path=data_dir, unusable=unusable)
    elif Path(name).is_file():
        dataset = _in_schema(name, unusable) or load_local(name, unusable=unusable)
        name = title or _title(name, 0)
    else:
        raise ValueError(f"There is no benchmark {name!r}: give one of {list(KNOWN)} or a local file.")
    return from_dataset(name, dataset if size is None else dataset.select(range(min(size, len(dataset)))))


def _in_schema(path: str, unusable: str) -> Dataset | None:
    """The rows of a file that has the project's columns; `None` for another file."""
    rows = list(map(open_row, open_rows("", path)))
    if not all(set(COLUMNS) <= row.keys() for row in rows):
        return None
    written, flaws = [], {}
    for number, row in enumerate(rows):
        try:
            gold = row["solution"] if isinstance(row["solution"], str) else gold_text(row["solution"])
            check_prompt(row["prompt"])
            f"{gold}{row['problem_id']}".encode()  # half a character cannot be stored
        except ValueError as error:
            if unusable == "raise":
                raise ValueError(f"{path}, row {number}: {error}. Fix it, or drop it with unusable='drop'.") from error
            flaws[number] = str(error)
            continue
        names = {name: str(row[name]) for name in ("problem_id", "source")}
        written.append({"prompt": row["prompt"], "solution": gold, **names})
    if len({type(row["prompt"]) for row in written}) > 1:
        raise ValueError(f"{path} has prompts of plain text and chats: make them one kind.")
    if not written:
        raise ValueError(f"{path} has no usable row, such as row 0: {flaws[0]}.")
    dataset = Dataset.from_list(written)
    if flaws:
        survey = Survey(len(rows), list(range(len(written))), flaws)
        dataset.info.description = f"{Path(path).name}: {survey}"
        logger.warning("%s: %s.", path, survey)
    return dataset


def from_dataset(name: str, dataset: Dataset) -> Benchmark:
    """
    The distinct problems of a dataset with `prompt`, `solution` and `problem_id`.

    Rows that repeat a prompt and its gold count once, as in the published files that hold each problem 32 times.
    """
    missing = [column for column in ("prompt", "solution", "problem_id") if column not in dataset.column_names]
    if missing or not len(dataset):
        raise ValueError(f"{name} needs rows with prompt, solution and problem_id; missing: {missing or 'rows'}.")
    problems = {}
    for row in dataset:
        problem = Problem(name, str(row["problem_id"]), row["prompt"], row["solution"])
        problems.setdefault((problem.checksum, str(problem.solution)), problem)
    names = {problem.problem_id for problem in problems.values()}
    if len(names) < len(problems):
        raise ValueError(f"{name} has {len(problems)} different problems but {len(names)} different problem_id.")
    # What the datasets library fetched is named by its commit
    fetched = re.search(r"@([0-9a-f]{40})/", " ".join(dataset.info.download_checksums or ()))
    description = re.match(r"[^:]*: ([\d,]+) rows?", dataset.info.description or "")  # of the loaders, before copies
    rows = int(description[1].replace(",", "")) if description else len(dataset)
    unusable = re.search(r"([\d,]+) unusable \(", dataset.info.description or "")
    dropped = int(unusable[1].replace(",", "")) if unusable else 0
    return Benchmark(name, list(problems.values()), rows, fetched and fetched[1], dropped)
