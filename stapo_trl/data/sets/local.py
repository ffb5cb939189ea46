"""A file of one's own."""

from collections.abc import Mapping
from pathlib import Path

from datasets import Dataset, IterableDataset

from ..problems import load_problems
from ..reading.source import open_rows


def load_local(
    path: str | Path,
    *,
    columns: Mapping[str, str] | None = None,
    config: str | None = None,
    split: str | None = None,
    streaming: bool = False,
    unusable: str = "raise",
    **options,
) -> Dataset | IterableDataset:
    """
    Problems from a local JSONL, JSON, parquet, CSV or Arrow file, or a folder of them.

    Args:
        path (`str` or `Path`):
            The file or folder.
        columns (`Mapping[str, str]`, *optional*):
            Where `"problem"` and `"solution"` are if the usual names do not tell; dots lead into nested columns.
        config (`str`, *optional*):
            Configuration, of a folder that has several.
        split (`str`, *optional*):
            Split, of a folder that has several.
        streaming (`bool`, defaults to `False`):
            Whether rows are read while they are iterated over.
        unusable (`str`, defaults to `"raise"`):
            What becomes of rows that cannot be used; see [`load_problems`].
        **options:
            `prompt_format` and `instruction` of [`load_problems`].

    Returns:
        `Dataset` or `IterableDataset`: columns `prompt`, `solution`, `problem_id` and `source` (the name of the file).

    Example:

    ```python
    load_local("sums.csv", columns={"problem": "text", "solution": "result"})[0]["solution"]  # '025', as it is written
    ```
    """
    rows = open_rows("", path, config, None, split, streaming=streaming)
    return load_problems(rows, Path(path).name.partition(".")[0], columns, unusable=unusable, **options)
