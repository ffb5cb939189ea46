"""Reads data sets on the hub or in a folder as exactly as single files. Nothing in them is executed."""

from collections.abc import Mapping
from pathlib import Path
from zipfile import BadZipFile

import datasets
import fsspec
import pyarrow.parquet as pq
import yaml
from datasets import (
    DatasetBuilder,
    DatasetDict,
    DownloadConfig,
    DownloadManager,
    Features,
    IterableDatasetDict,
    Value,
    concatenate_datasets,
    get_dataset_config_names,
    load_dataset,
    load_dataset_builder,
)
from datasets.exceptions import DatasetGenerationError, DatasetNotFoundError
from datasets.fingerprint import Hasher
from huggingface_hub import snapshot_download
from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

from .csv_file import keep_text
from .json_file import open_json


UNREADABLE = (DatasetGenerationError, ValueError, EOFError, OSError, BadZipFile, yaml.YAMLError)


def reason(error: Exception) -> Exception:
    """What went wrong, which `datasets` hides behind an error that says nothing."""
    return error.__cause__ or error if isinstance(error, DatasetGenerationError) else error


def open_repository(
    repo_id: str, config: str | None, revision: str | None, streaming: bool
) -> DatasetDict | IterableDatasetDict:
    """
    All splits of a repository; of all its configurations if it has several and no default.

    Without access to the hub, files from an earlier download are used. JSON is downloaded even for a stream. Raises
    `FileNotFoundError` if the repository is gone or out of reach, and `ValueError` for an unknown configuration, damaged
    files, and text that would become numbers.
    """
    try:
        try:
            return _load(repo_id, config, revision, streaming)
        except ValueError:
            configs = [] if config else get_dataset_config_names(repo_id, revision=revision)
            if len(configs) < 2:
                raise
            parts = [_load(repo_id, name, revision, streaming) for name in configs]
            return type(parts[0])({name: concatenate_datasets([part[name] for part in parts]) for name in parts[0]})
    except (ConnectionError, DatasetNotFoundError, FileNotFoundError, RuntimeError) as error:
        if isinstance(error, ConnectionError) and (folder := _find_snapshot(repo_id, revision)):
            return open_repository(folder, config, None, streaming)
        raise FileNotFoundError(
            f"'{repo_id}' could not be loaded ({error}): give another copy as `repo_id`, or a local file as `path`."
        ) from error
    except UNREADABLE as error:
        raise ValueError(f"'{repo_id}' cannot be read: {reason(error)}") from error


def _load(repo_id: str, config: str | None, revision: str | None, streaming: bool):
    """All splits of one configuration."""
    builder = load_dataset_builder(repo_id, name=config, revision=revision)
    if builder.name == "cache" and builder.info.builder_name in ("json", "csv"):  # whose reader is not exact
        if folder := _find_snapshot(repo_id, revision):
            return open_repository(folder, config, None, streaming)
    if builder.name == "json" and builder.config.field is None:
        # Archives are unpacked anew, since the cache of `datasets` tells local ones apart by their names only
        manager = DownloadManager(download_config=DownloadConfig(force_extract=True))
        files = manager.download_and_extract(dict(builder.config.data_files))
        splits = {
            split: open_json([Path(file) for file in manager.iter_files(part)], streaming)
            for split, part in files.items()
        }
        return IterableDatasetDict(splits) if streaming else DatasetDict(splits)
    options = {}
    if builder.name == "parquet":
        _check_types(builder, streaming)
    if builder.name == "csv" and not builder.config.names:
        options, *_ = [keep_text(file, builder.config.sep) for file in _fetch(builder, streaming)]
    if Path(repo_id).is_dir():
        options["cache_dir"] = _cache_of(Path(repo_id), builder)
    return load_dataset(repo_id, name=config, revision=revision, streaming=streaming, **options)


def _cache_of(folder: Path, builder: DatasetBuilder) -> str:
    """A cache for a folder as it is now; the usual one knows only its name, and would return what it held before."""
    names = [folder / "README.md", *(name for part in builder.config.data_files.values() for name in part)]
    files = [file.resolve() for file in map(Path, names) if file.exists()]
    stamp = [(str(file), file.stat().st_mtime_ns, file.stat().st_size) for file in files]
    return str(Path(datasets.config.HF_DATASETS_CACHE, "folders", Hasher.hash(stamp)))


def _find_snapshot(repo_id: str, revision: str | None) -> str | None:
    """The folder of an earlier download from the hub, if there is one."""
    try:
        return snapshot_download(repo_id, repo_type="dataset", revision=revision, local_files_only=True)
    except (LocalEntryNotFoundError, HFValidationError):
        return None


def _check_types(builder: DatasetBuilder, streaming: bool) -> None:
    """Refuse parquet files whose text would become numbers, by the types of the first file or of the README."""
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
    """The files of all splits, downloaded unless they are streamed."""
    files = [file for part in builder.config.data_files.values() for file in part]
    return files if streaming else DownloadManager().download(files)


def _loses_text(stored: object, wanted: object) -> bool:
    if isinstance(stored, Value) and isinstance(wanted, Value):
        return "string" in stored.dtype and "string" not in wanted.dtype
    if isinstance(stored, Mapping) and isinstance(wanted, Mapping):
        return any(_loses_text(stored[name], wanted.get(name)) for name in stored)
    return _loses_text(getattr(stored, "feature", None), getattr(wanted, "feature", None)) if stored else False
