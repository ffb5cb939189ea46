"""The six evaluation sets, from the hub or from local copies."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from datasets import Dataset

from ..problems import load_problems, logger
from ..prompt import PromptFormat, check_format
from ..reading.columns import open_row
from ..reading.source import READERS, open_rows


@dataclass(frozen=True)
class Benchmark:
    """Where an evaluation set is published, how many problems it has, and which rows belong to it."""

    repo_id: str
    split: str
    size: int
    config: str | None = None
    year: str | None = None  # of the contest; problems of other years in the same file are dropped
    keep: Callable[[Mapping], bool] | None = None


def _is_open_english_text_maths(row: Mapping) -> bool:
    """Excludes images, proofs, physics and Chinese from OlympiadBench, as far as the row tells."""
    images = [value for name, value in row.items() if name.startswith("image")]
    final = row.get("final_answer", "unknown")
    return (
        not any(images)
        and str(row.get("modality") or "Text-only").lower().startswith("text")
        and str(row.get("language") or "English").lower().startswith("en")
        and str(row.get("subject") or "Math").lower().startswith("math")
        and "proof" not in str(row.get("question_type") or "").lower()
        and final not in (None, [])
    )


_SETS = {
    "aime24": Benchmark("HuggingFaceH4/aime_2024", "train", 30, year="2024"),
    "aime25": Benchmark("math-ai/aime25", "test", 30, year="2025"),
    "amc23": Benchmark("math-ai/amc23", "test", 40, year="2023"),
    "math500": Benchmark("HuggingFaceH4/MATH-500", "test", 500),
    "minerva": Benchmark("math-ai/minervamath", "test", 272),
    "olympiadbench": Benchmark(
        "Hothan/OlympiadBench", "train", 674, config="OE_TO_maths_en_COMP", keep=_is_open_english_text_maths
    ),
}
BENCHMARKS = tuple(_SETS)


def load_benchmark(
    name: str,
    *,
    path: str | Path | None = None,
    repo_id: str | None = None,
    revision: str | None = None,
    split: str | None = None,
    prompt_format: PromptFormat = "chat",
    unusable: str = "raise",
) -> Dataset:
    """
    The problems of an evaluation set.

    Args:
        name (`str`):
            One of `BENCHMARKS`.
        path (`str` or `Path`, *optional*):
            A file to read instead of the hub, or a folder with a file or folder named like the set, such as
            `math-500.parquet` or `AIME24/test.jsonl`.
        repo_id (`str`, *optional*):
            Another copy on the hub.
        revision (`str`, *optional*):
            Branch, tag or commit.
        split (`str`, *optional*):
            Split, by default the usual or only one.
        prompt_format (`str`, defaults to `"chat"`):
            `"chat"` or `"plain"`; see [`format_prompt`].
        unusable (`str`, defaults to `"raise"`):
            What to do with rows that cannot be used; see [`load_problems`].

    Returns:
        `Dataset`: columns `prompt`, `solution`, `problem_id` and `source`, one row per problem. A warning is logged if
        the number of problems is not the published one.

    Raises:
        `ValueError`: for an unknown name, columns or golds.
        `FileNotFoundError`: if there is no such file, or the hub is out of reach.

    Example:

    ```python
    load_benchmark("aime24", path="benchmarks")[0]["solution"]  # '204'
    ```
    """
    if name not in _SETS:
        raise ValueError(f"There is no benchmark {name!r}: give one of {list(BENCHMARKS)}.")
    check_format(prompt_format)
    benchmark = _SETS[name]
    if path is not None:
        path = _find(Path(path), name)
    config = benchmark.config if path is None and repo_id in (None, benchmark.repo_id) else None
    rows = open_rows(repo_id or benchmark.repo_id, path, config, revision, split, benchmark.split)
    numbers = [number for number, row in enumerate(rows) if _belongs(open_row(row), benchmark)]
    if not numbers:
        raise ValueError(f"{path or repo_id or benchmark.repo_id} holds no problem of {name} in its {len(rows)} rows.")
    rows = rows.select(numbers)
    problems = load_problems(rows, name, prompt_format=prompt_format, unusable=unusable)
    problems.info.description += f" ({benchmark.size} expected)"
    if len(problems) != benchmark.size:
        logger.warning("%s: %d problems, %d expected.", name, len(problems), benchmark.size)
    return problems


def _belongs(row: Mapping, benchmark: Benchmark) -> bool:
    of_year = benchmark.year is None or _year(row) in (None, benchmark.year)
    return of_year and (benchmark.keep is None or benchmark.keep(row))


def _year(row: Mapping) -> str | None:
    """The year of a contest problem, if the row tells it."""
    year = next((str(row[name]) for name in ("year", "Year") if row.get(name)), None)
    in_url = re.search(r"\b((?:19|20)\d\d)_(?:AIME|AMC)", str(row.get("url") or ""))
    return in_url[1] if in_url else year


def _find(path: Path, name: str) -> Path:
    """The path itself if it is a file; in a folder, the file or folder that is named like the set."""
    if not path.is_dir():
        return path
    inside = sorted(path.rglob("*"))
    files = [file for file in inside if file.is_file() and file.suffix.lstrip(".") in READERS]
    for found in (*files, path, *filter(Path.is_dir, inside)):
        if _letters(found.name.partition(".")[0]) == _letters(name):
            return found
    names = [str(file.relative_to(path)) for file in files]
    raise FileNotFoundError(f"{path} holds no file or folder named {name!r}, only {names}: give the file itself.")


def _letters(name: str) -> str:
    """`AIME_2024`, `MATH-500` and `minerva-math` are `aime24`, `math500` and `minerva`."""
    letters = "".join(filter(str.isalnum, name.casefold()))
    return re.sub(r"20(?=\d\d$)", "", letters).removesuffix("math")
