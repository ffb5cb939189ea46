"""Benchmarks: a published one, the embedded task, or a local file."""

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

from datasets import Dataset

from ..data import BENCHMARKS, load_arithmetic, load_benchmark, load_local
from ..data.gold import gold_text
from ..data.prompt import check_prompt
from ..data.reading.columns import open_row
from ..data.reading.source import open_rows
from .samples import Problem, Request


COLUMNS = ("prompt", "solution", "problem_id", "source")


@dataclass(frozen=True)
class Benchmark:
    """Distinct problems under one name, of `rows` rows that may repeat them; `revision` is a commit on the hub."""

    name: str
    problems: list[Problem]
    rows: int
    revision: str | None = None

    @property
    def checksum(self) -> str:
        """Checksum of all prompts and golds."""
        content = "".join(f"{problem.problem_id}{problem.checksum}{problem.solution}\n" for problem in self.problems)
        return hashlib.sha256(content.encode()).hexdigest()[:16]

    def requests(self, n: int) -> list[Request]:
        """Requests for n samples of every problem."""
        return [Request(problem, number) for problem in self.problems for number in range(n)]


def open_benchmark(name: str, data_dir: str | Path | None = None, size: int | None = None) -> Benchmark:
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

    Raises:
        `ValueError`: for an unknown name, or rows that cannot be used as prompts or graded.
    """
    if size is not None and size < 1:
        raise ValueError(f"`size` must be at least 1, got {size}.")
    if name == "arithmetic":
        dataset = load_arithmetic("test", size or 500)
    elif name in BENCHMARKS:
        dataset = load_benchmark(name, path=data_dir)
    elif Path(name).is_file():
        dataset = _in_schema(name) or load_local(name)
        name = Path(name).name.partition(".")[0]
    else:
        raise ValueError(f"There is no benchmark {name!r}: give one of {[*BENCHMARKS, 'arithmetic']} or a local file.")
    return from_dataset(name, dataset if size is None else dataset.select(range(min(size, len(dataset)))))


def _in_schema(path: str) -> Dataset | None:
    """The rows of a file that has the project's columns; `None` for another file."""
    rows = list(map(open_row, open_rows("", path)))
    if not all(set(COLUMNS) <= row.keys() for row in rows):
        return None
    written = []
    for number, row in enumerate(rows):
        try:
            gold = row["solution"] if isinstance(row["solution"], str) else gold_text(row["solution"])
            check_prompt(row["prompt"])
            f"{gold}{row['problem_id']}".encode()  # half a character cannot be stored
        except ValueError as error:
            raise ValueError(f"{path}, row {number}: {error}.") from error
        names = {name: str(row[name]) for name in ("problem_id", "source")}
        written.append({"prompt": row["prompt"], "solution": gold, **names})
    if len({type(row["prompt"]) for row in written}) > 1:
        raise ValueError(f"{path} has prompts of plain text and chats: make them one kind.")
    return Dataset.from_list(written)


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
    return Benchmark(name, list(problems.values()), rows, fetched and fetched[1])
