"""GSM8K: grade-school word problems with worked answers."""

from pathlib import Path

from datasets import Dataset, IterableDataset

from .training import load_training_set


def load_gsm8k(
    path: str | Path | None = None, *, repo_id: str = "openai/gsm8k", config: str | None = "main", **options
) -> Dataset | IterableDataset:
    r"""
    GSM8K, with the number after `####` as the gold answer, without its thousands commas.

    7,473 rows for training and 1,319 for testing, such as:

    ```python
    {"question": "Ann has 3 boxes of 4 pens. How many pens?", "answer": "There are 3*4=<<3*4=12>>12 pens.\n#### 12"}
    ```

    Args:
        path (`str` or `Path`, *optional*):
            A local file or folder to read instead of the hub.
        repo_id (`str`, defaults to `"openai/gsm8k"`):
            Copy on the hub.
        config (`str`, *optional*, defaults to `"main"`):
            Configuration on the hub; `None` for copies without one named `main`.
        **options:
            `revision`, `split` (`"train"` or `"test"`), `streaming`, `unusable` (`"drop"` by default), `columns`,
            `prompt_format` and `instruction`; see [`load_training_set`].

    Returns:
        `Dataset` or `IterableDataset`: columns `prompt`, `solution`, `problem_id` and `source`.
    """
    return load_training_set("gsm8k", repo_id, path, None if path else config, **options)
