"""Opens a data set: a repository on the hub, or a file or folder in its place. Nothing in it is executed."""

import glob
from collections.abc import Mapping
from pathlib import Path
from zipfile import BadZipFile

import fsspec
import pandas as pd
import pyarrow.parquet as pq
import yaml
from datasets import (
    Dataset,
    DatasetBuilder,
    DatasetDict,
    DownloadConfig,
    DownloadManager,
    Features,
    IterableDataset,
    IterableDatasetDict,
    Value,
    concatenate_datasets,
    get_dataset_config_names,
    load_dataset,
    load_dataset_builder,
    load_from_disk,
)
from datasets.exceptions import DatasetGenerationError, DatasetNotFoundError

from .json_file import open_json


UNREADABLE = (DatasetGenerationError, ValueError, EOFError, OSError, BadZipFile, yaml.YAMLError)
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
    The rows of a data set as they are stored.

    Args:
        repo_id (`str`):
            Repository on the hub, used if there is no `path`.
        path (`str` or `Path`, *optional*):
            A parquet, JSON, JSONL, CSV, TSV or Arrow file, or a folder in the shape of a repository or of
            `save_to_disk`. Text in CSV and JSON files stays text, on the hub too: 025 is not turned into 25.
        config (`str`, *optional*):
            Configuration. Without one the default; where there is no default, all of them, one after the other.
        revision (`str`, *optional*):
            Branch, tag or commit on the hub.
        split (`str`, *optional*):
            Split. Without one the only one, or else `default_split`.
        default_split (`str`, defaults to `"train"`):
            What to take of several splits.
        streaming (`bool`, defaults to `False`):
            Whether the rows are read while they are iterated over. JSON on the hub is downloaded before.

    Returns:
        `Dataset` or `IterableDataset`

    Raises:
        `FileNotFoundError`: if there is nothing at `path`, or the repository is gone or out of reach.
        `ValueError`: for an unknown split or kind of file, one without rows, and for a broken line, by its number.
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
            separator = "\t" if kind == "tsv" else ","
            options = {"sep": separator} | _as_text(_read_header(path, separator))
        file = glob.escape(str(path))
        return load_dataset(READERS[kind], data_files=file, split="train", streaming=streaming, **options)
    except UNREADABLE as error:
        raise ValueError(f"{path} cannot be read as {kind}: {_reason(error)}.") from error


def _reason(error: Exception) -> Exception:
    """What went wrong: `datasets` hides it behind an error that says nothing."""
    return error.__cause__ or error if isinstance(error, DatasetGenerationError) else error


def _read_header(path: str | Path, separator: str) -> list[str]:
    """Names of the columns of a CSV whose first row fits them."""
    first = pd.read_csv(path, nrows=1, sep=separator, dtype=str)
    if not isinstance(first.index, pd.RangeIndex):  # what stands too much would move every cell to another column
        raise ValueError("its first row has more cells than there are columns: put quotes around texts with commas")
    if first.empty:
        raise ValueError("it has no rows")
    return list(first.columns)


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
        options = {"name": config, "revision": revision}
        builder = load_dataset_builder(repo_id, **options)
        options["streaming"] = streaming
        if builder.name == "json" and builder.config.field is None:
            # Archives are unpacked anew: the cache of `datasets` knows a local one by its name only
            manager = DownloadManager(download_config=DownloadConfig(force_extract=True))
            files = manager.download_and_extract(dict(builder.config.data_files))
            return (IterableDatasetDict if streaming else DatasetDict)(
                {
                    split: open_json([Path(file) for file in manager.iter_files(part)], streaming)
                    for split, part in files.items()
                }
            )
        if builder.name == "parquet":
            _check_types(builder, streaming)
        if builder.name == "csv" and not builder.config.names:
            headers = [_read_header(file, builder.config.sep) for file in _fetch(builder, streaming)]
            options |= _as_text(headers[0])
        return load_dataset(repo_id, **options)

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
    except UNREADABLE as error:
        raise ValueError(f"'{repo_id}' cannot be read: {_reason(error)}") from error


def _check_types(builder: DatasetBuilder, streaming: bool) -> None:
    """Refuses parquet files whose text would become numbers, in the type of the first file or of the README."""
    wanted = builder.info.features
    if wanted is None and sum(map(len, builder.config.data_files.values())) == 1:
        return
    for file in _fetch(builder, streaming):
        with fsspec.open(file) as content:
            stored = Features.from_arrow_schema(pq.read_schema(content))
        wanted = wanted or stored
        for name in stored:
            if _loses_text(stored[name], wanted.get(name)):
                raise ValueError(
                    f"the column {name!r} is text in {file} and {wanted[name]} for the other files or the README, which "
                    "would turn 025 into 25: give that file as `path`."
                )


def _fetch(builder: DatasetBuilder, streaming: bool) -> list[str]:
    """The files of all splits: downloaded, or for a stream where they are."""
    files = [file for part in builder.config.data_files.values() for file in part]
    return files if streaming else DownloadManager().download(files)


def _loses_text(stored: object, wanted: object) -> bool:
    if isinstance(stored, Value) and isinstance(wanted, Value):
        return "string" in stored.dtype and "string" not in wanted.dtype
    if isinstance(stored, Mapping) and isinstance(wanted, Mapping):
        return any(_loses_text(stored[name], wanted.get(name)) for name in stored)
    return _loses_text(getattr(stored, "feature", None), getattr(wanted, "feature", None)) if stored else False
