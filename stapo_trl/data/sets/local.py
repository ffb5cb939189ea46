"""Problems from a local file."""

from collections.abc import Mapping
from pathlib import Path

from datasets import Dataset, IterableDataset

from .training import load_training_set


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
            The columns of `"problem"` and `"solution"` if they have unusual names; dots lead into nested columns.
        config (`str`, *optional*):
            Configuration of a folder that has several.
        split (`str`, *optional*):
            Split of a folder that has several.
        streaming (`bool`, defaults to `False`):
            Whether to read rows while they are iterated over.
        unusable (`str`, defaults to `"raise"`):
            What to do with rows that cannot be used; see [`load_problems`].
        **options:
            `prompt_format` and `instruction` of [`load_problems`].

    Returns:
        `Dataset` or `IterableDataset`: columns `prompt`, `solution`, `problem_id` and `source` (the name of the file).

    Example:

    ```python
    load_local("sums.csv", columns={"problem": "text", "solution": "result"})[0]["solution"]  # '025', as written
    ```
    """
    name = Path(path).name.partition(".")[0]
    return load_training_set(
        name, "", path, config, split=split, streaming=streaming, unusable=unusable, columns=columns, **options
    )
