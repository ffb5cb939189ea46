"""Opens a data set: a repository on the hub, or a local file or folder. Nothing in it is executed."""

import glob
from pathlib import Path

import pyarrow.parquet as pq
from datasets import Dataset, DatasetDict, IterableDataset, IterableDatasetDict, load_dataset, load_from_disk

from .csv_file import keep_text
from .json_file import open_json
from .repository import UNREADABLE, open_repository, reason


READERS = {
    "parquet": "parquet",
    "jsonl": "json",
    "ndjson": "json",
    "json": "json",
    "csv": "csv",
    "tsv": "csv",
    "arrow": "arrow",
}


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
    The rows of a data set as they are stored. Text in CSV and JSON files stays text: 025 does not become 25.

    A `path` is read instead of the repository `repo_id` on the hub: a parquet, JSON, JSONL, CSV, TSV or Arrow file, or a
    folder in the shape of a repository or of `save_to_disk`. Without `config`, the default configuration is read, or all
    of them if there is no default; without `split`, the only one or else `default_split`. A stream of JSON on the hub is
    downloaded first.

    Raises:
        `FileNotFoundError`: if the path does not exist, or the repository is gone or out of reach.
        `ValueError`: for an unknown split or kind of file, a file without rows, and a broken line, with its number.
    """
    if path is not None and not Path(path).is_dir():
        if split not in (None, "train") and split not in Path(path).name:
            raise ValueError(f"The file {path} has no split {split!r}: name one that has it as its `path`.")
        return _open_file(Path(path), streaming)
    splits = (
        _open_folder(Path(path), config, streaming) if path else open_repository(repo_id, config, revision, streaming)
    )
    if not isinstance(splits, DatasetDict | IterableDatasetDict):
        return splits
    if split is None:
        split = next(iter(splits)) if len(splits) == 1 else default_split
    if split not in splits:
        raise ValueError(f"'{path or repo_id}' has no split {split!r}: give one of {[*map(str, splits)]} as `split`.")
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
        return open_json([path], streaming)
    options = {}
    try:
        if kind == "parquet" and not pq.read_metadata(path).num_rows:
            raise ValueError("it has no rows")
        if READERS[kind] == "csv":
            options = keep_text(path, "\t" if kind == "tsv" else ",")
        file = glob.escape(str(path))
        return load_dataset(READERS[kind], data_files=file, split="train", streaming=streaming, **options)
    except UNREADABLE as error:
        raise ValueError(f"{path} cannot be read as {kind}: {reason(error)}.") from error


def _open_folder(folder: Path, config: str | None, streaming: bool):
    if (folder / "state.json").exists() or (folder / "dataset_dict.json").exists():  # written by `save_to_disk`
        saved = load_from_disk(str(folder))
        return saved.to_iterable_dataset() if streaming and isinstance(saved, Dataset) else saved
    return open_repository(str(folder), config, None, streaming)
