"""What the loaders of training sets share."""

from pathlib import Path

from datasets import Dataset, IterableDataset

from ..problems import load_problems
from ..reading.source import open_rows


def load_training_set(
    name: str,
    repo_id: str,
    path: str | Path | None = None,
    config: str | None = None,
    *,
    revision: str | None = None,
    split: str | None = None,
    streaming: bool = False,
    unusable: str = "drop",
    **options,
) -> Dataset | IterableDataset:
    """
    The problems of a training set, from the hub or from a local copy.

    Args:
        name (`str`):
            Name of the set, for `source` and `problem_id`.
        repo_id (`str`):
            Copy on the hub.
        path (`str` or `Path`, *optional*):
            A local file or folder to read instead.
        config (`str`, *optional*):
            Configuration.
        revision (`str`, *optional*):
            Branch, tag or commit on the hub.
        split (`str`, *optional*):
            Split; by default `"train"`, or the only one.
        streaming (`bool`, defaults to `False`):
            Whether to read rows while they are iterated over. Copies of a problem stay then.
        unusable (`str`, defaults to `"drop"`):
            What to do with rows that cannot be used; see [`load_problems`].
        **options:
            `columns`, `prompt_format` and `instruction` of [`load_problems`].

    Returns:
        `Dataset` or `IterableDataset`: columns `prompt`, `solution`, `problem_id` and `source`.
    """
    rows = open_rows(repo_id, path, config, revision, split, streaming=streaming)
    return load_problems(rows, name, unusable=unusable, **options)
