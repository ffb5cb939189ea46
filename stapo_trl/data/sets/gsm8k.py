"""GSM8K: word problems of grade school, with worked answers."""

from pathlib import Path

from datasets import Dataset, IterableDataset

from ..problems import load_problems
from ..reading.source import open_rows


def load_gsm8k(
    path: str | Path | None = None,
    *,
    repo_id: str = "openai/gsm8k",
    config: str | None = "main",
    revision: str | None = None,
    split: str | None = None,
    streaming: bool = False,
    unusable: str = "drop",
    **options,
) -> Dataset | IterableDataset:
    r"""
    GSM8K, with the number behind `####` as the gold answer, without its thousands commas.

    7,473 rows for training and 1,319 for testing, in this shape:

    ```python
    {"question": "Ann has 3 boxes of 4 pens. How many pens?", "answer": "There are 3*4=<<3*4=12>>12 pens.\n#### 12"}
    ```

    Args:
        path (`str` or `Path`, *optional*):
            A local file or folder in place of the hub.
        repo_id (`str`, defaults to `"openai/gsm8k"`):
            Copy on the hub.
        config (`str`, *optional*, defaults to `"main"`):
            Its configuration; `None` for copies without the name `main`.
        revision (`str`, *optional*):
            Branch, tag or commit.
        split (`str`, *optional*):
            `"train"`, which is the default, or `"test"`.
        streaming (`bool`, defaults to `False`):
            Whether rows are read while they are iterated over.
        unusable (`str`, defaults to `"drop"`):
            What becomes of rows that cannot be used; see [`load_problems`].
        **options:
            `prompt_format`, `instruction` and `columns` of [`load_problems`].

    Returns:
        `Dataset` or `IterableDataset`: columns `prompt`, `solution`, `problem_id` and `source`.
    """
    rows = open_rows(repo_id, path, None if path else config, revision, split, streaming=streaming)
    return load_problems(rows, "gsm8k", unusable=unusable, **options)
