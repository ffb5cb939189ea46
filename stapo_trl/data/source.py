"""Opens a data set: a repository on the hub, or files and folders in its place. Nothing is ever executed."""

import csv
import gzip
import json
from pathlib import Path

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


READERS = {"parquet": "parquet", "jsonl": "json", "json": "json", "csv": "csv", "tsv": "csv", "arrow": "arrow"}


def open_file(path: str | Path, streaming: bool = False) -> Dataset | IterableDataset:
    """
    The rows of a parquet, JSON, JSONL, CSV, TSV or Arrow file; JSON and CSV may be gzipped.

    Text stays text: the columns of a CSV are not turned into numbers.

    Args:
        path (`str` or `Path`):
            The file.
        streaming (`bool`, defaults to `False`):
            Whether to read it while it is iterated over.

    Returns:
        `Dataset` or `IterableDataset`

    Raises:
        `FileNotFoundError`: if it is not there.
        `ValueError`: for another kind of file, or a broken line, with its number.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"There is no file {path}.")
    kind = path.name.removesuffix(".gz").rpartition(".")[2].lower()
    if kind not in READERS:
        raise ValueError(f"{path} is none of {', '.join(READERS)}: convert it, or load it with `datasets` yourself.")
    options = {}
    if READERS[kind] == "csv":
        separator = "\t" if kind == "tsv" else ","
        with _open_text(path) as file:
            names = next(csv.reader(file, delimiter=separator), [])
        text = Features({name: Value("string") for name in names})
        options = {"features": text, "sep": separator, "keep_default_na": False, "encoding": "utf-8-sig"}
    elif READERS[kind] == "json":
        _check_json(path, lines=kind == "jsonl")
    try:
        return load_dataset(READERS[kind], data_files=str(path), split="train", streaming=streaming, **options)
    except DatasetGenerationError as error:
        raise ValueError(f"{path} cannot be read as {kind}: {error.__cause__ or error}.") from error


def _open_text(path: Path):
    return (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8-sig", newline="")


def _check_json(path: Path, lines: bool) -> None:
    """Names the broken line, which the reader of `datasets` does not."""
    with _open_text(path) as file:
        for number, line in enumerate(file if lines else [file.read()], 1):
            try:
                json.loads(line or "null") if line.strip() else None
            except json.JSONDecodeError as error:
                where = f"line {number}" if lines else f"line {error.lineno}"
                raise ValueError(f"{path}, {where} is not JSON: {error.msg}.") from error


def open_repository(
    repo_id: str,
    config: str | None = None,
    revision: str | None = None,
    split: str | None = None,
    preferred_split: str | None = None,
    streaming: bool = False,
) -> Dataset | IterableDataset:
    """
    The rows of a split of a repository on the hub, or of a folder in its shape.

    Args:
        repo_id (`str`):
            Name on the hub, or path of a folder.
        config (`str`, *optional*):
            Configuration. Without one, the default; where there is no default, all, one after the other.
        revision (`str`, *optional*):
            Branch, tag or commit.
        split (`str`, *optional*):
            Split. Without one, the preferred or the only one.
        preferred_split (`str`, *optional*):
            Split to take if there is no choice by `split` and the repository has it.
        streaming (`bool`, defaults to `False`):
            Whether to read it while it is iterated over.

    Returns:
        `Dataset` or `IterableDataset`

    Raises:
        `FileNotFoundError`: if the repository is out of reach, with what to do.
        `ValueError`: if it has several splits and none is chosen.
    """
    try:
        if Path(repo_id).is_dir() and any(Path(repo_id).glob("*.json")) and _was_saved_to_disk(Path(repo_id)):
            splits = load_from_disk(repo_id)
        else:
            splits = _load(repo_id, config, revision, streaming)
    except (ConnectionError, DatasetNotFoundError, FileNotFoundError) as error:
        raise FileNotFoundError(
            f"Could not load '{repo_id}' ({error}): give another copy as `repo_id`, or a local file as `path`."
        ) from error
    if not isinstance(splits, DatasetDict | IterableDatasetDict):
        return splits
    if split is None:
        names = list(splits)
        split = names[0] if len(names) == 1 else preferred_split
        if split not in names:
            raise ValueError(f"'{repo_id}' has the splits {names}: give one as `split`.")
    elif split not in splits:
        raise ValueError(f"'{repo_id}' has no split '{split}', only {list(splits)}.")
    return splits[split]


def _was_saved_to_disk(folder: Path) -> bool:
    return (folder / "dataset_info.json").exists() or (folder / "dataset_dict.json").exists()


def _load(repo_id: str, config: str | None, revision: str | None, streaming: bool):
    names = [config]
    if config is None:
        configs = get_dataset_config_names(repo_id, revision=revision)
        if len(configs) > 1 and "default" not in configs:
            names = configs
    parts = [load_dataset(repo_id, name=name, revision=revision, streaming=streaming) for name in names]
    if len(parts) == 1:
        return parts[0]
    return type(parts[0])({name: concatenate_datasets([part[name] for part in parts]) for name in parts[0]})
