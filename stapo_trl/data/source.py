"""Opens a data set: a repository on the hub, or a file or folder in its place. Nothing in it is executed."""

from pathlib import Path

import pandas as pd
from datasets import (
    Dataset,
    DatasetDict,
    Features,
    IterableDataset,
    IterableDatasetDict,
    Value,
    concatenate_datasets,
    get_dataset_config_names,
    load_dataset,
    load_from_disk,
)
from datasets.exceptions import DatasetGenerationError, DatasetNotFoundError

from .json_file import open_json


READERS = {"parquet": "parquet", "jsonl": "json", "json": "json", "csv": "csv", "tsv": "csv", "arrow": "arrow"}


def open_rows(
    repo_id: str,
    path: str | Path | None = None,
    config: str | None = None,
    revision: str | None = None,
    split: str | None = None,
    default_split: str = "train",
    streaming: bool = False,
) -> Dataset | IterableDataset:
    """
    The rows of a data set as they are stored.

    Args:
        repo_id (`str`):
            Repository on the hub, used if there is no `path`.
        path (`str` or `Path`, *optional*):
            A parquet, JSON, JSONL, CSV, TSV or Arrow file, or a folder in the shape of a repository or of
            `save_to_disk`. Text in CSV and JSON files stays text: 025 is not turned into 25.
        config (`str`, *optional*):
            Configuration. Without one the default; where there is no default, all of them, one after the other.
        revision (`str`, *optional*):
            Branch, tag or commit on the hub.
        split (`str`, *optional*):
            Split. Without one the only one, or else `default_split`.
        default_split (`str`, defaults to `"train"`):
            What to take of several splits.
        streaming (`bool`, defaults to `False`):
            Whether the rows are read while they are iterated over.

    Returns:
        `Dataset` or `IterableDataset`

    Raises:
        `FileNotFoundError`: if there is nothing at `path`, or the repository is gone or out of reach.
        `ValueError`: for an unknown split or kind of file, and for a broken line, by its number.
    """
    if path is not None and not Path(path).is_dir():
        if split not in (None, "train") and split not in Path(path).name:
            raise ValueError(f"The file {path} has no split {split!r}: name one that has it as its `path`.")
        return _open_file(Path(path), streaming)
    splits = _open_folder(Path(path), config, streaming) if path else _load(repo_id, config, revision, streaming)
    if not isinstance(splits, DatasetDict | IterableDatasetDict):
        return splits
    if split is None:
        split = next(iter(splits)) if len(splits) == 1 else default_split
    if split not in splits:
        raise ValueError(f"'{path or repo_id}' has no split {split!r}: give one of {list(splits)} as `split`.")
    return splits[split]


def _open_file(path: Path, streaming: bool) -> Dataset | IterableDataset:
    if not path.is_file():
        raise FileNotFoundError(f"There is no file {path}.")
    kind = path.name.lower().removesuffix(".gz").rpartition(".")[2]
    if kind not in READERS:
        raise ValueError(f"{path} is none of {', '.join(READERS)}: convert it, or open it with `datasets` yourself.")
    if not path.stat().st_size:
        raise ValueError(f"{path} is empty.")
    if READERS[kind] == "json":
        return open_json(path, streaming)
    options = {}
    if READERS[kind] == "csv":
        separator = "\t" if kind == "tsv" else ","
        options = {"sep": separator} | _as_text(pd.read_csv(path, nrows=0, sep=separator).columns)
    try:
        return load_dataset(READERS[kind], data_files=str(path), split="train", streaming=streaming, **options)
    except DatasetGenerationError as error:
        raise ValueError(f"{path} cannot be read as {kind}: {error.__cause__ or error}.") from error


def _as_text(names) -> dict:
    """Options that keep the columns of a CSV as they are written."""
    return {"features": Features({name: Value("string") for name in names}), "keep_default_na": False}


def _open_folder(folder: Path, config: str | None, streaming: bool):
    if (folder / "state.json").exists() or (folder / "dataset_dict.json").exists():  # written by `save_to_disk`
        saved = load_from_disk(str(folder))
        return saved.to_iterable_dataset() if streaming and isinstance(saved, Dataset) else saved
    return _load(str(folder), config, None, streaming)


def _load(repo_id: str, config: str | None, revision: str | None, streaming: bool):
    """All splits of a repository; of all its configurations if it has several and no default."""

    def load(config: str | None):
        options = {"name": config, "revision": revision, "streaming": streaming}
        splits = load_dataset(repo_id, **options)
        first = next(iter(splits.values()))
        if first.info.builder_name == "csv":
            splits = load_dataset(repo_id, **options, **_as_text(first.column_names or next(iter(first))))
        return splits

    try:
        try:
            return load(config)
        except ValueError:
            configs = [] if config else get_dataset_config_names(repo_id, revision=revision)
            if len(configs) < 2:
                raise
            parts = [load(name) for name in configs]
            return type(parts[0])({name: concatenate_datasets([part[name] for part in parts]) for name in parts[0]})
    except (ConnectionError, DatasetNotFoundError, FileNotFoundError, RuntimeError) as error:
        raise FileNotFoundError(
            f"'{repo_id}' could not be loaded ({error}): give another copy as `repo_id`, or a local file as `path`."
        ) from error
