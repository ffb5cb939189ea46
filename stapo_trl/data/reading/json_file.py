"""
Reads JSON files exactly.

The reader of `datasets` turns the text "025" into the number 25 where a column also holds numbers, and texts that look
like dates into dates. Here every row stays JSON, in one column of text, and [`value_at`] looks into it.
"""

import gzip
import json
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from datasets import Dataset, Features, IterableDataset, Value

from .columns import JSON_ROW


def open_json(paths: Sequence[Path], streaming: bool = False) -> Dataset | IterableDataset:
    """
    The rows of JSON or JSONL files, one file after the other, as one column with the JSON of each row.

    Keys that a row lacks are `null` in its JSON, but missing in a stream. Raises `ValueError` naming a line that is not a
    JSON object, and for files without any.
    """
    features, paths = Features({JSON_ROW: Value("string")}), tuple(paths)
    if streaming:
        return IterableDataset.from_generator(_write_rows, features, gen_kwargs={"paths": paths})
    keys = tuple(dict.fromkeys(key for path in paths for row in read_objects(path) for key in row))
    if not keys:
        raise ValueError(f"{', '.join(map(str, paths))} has no rows.")
    # The cache of `datasets` tells files apart by their names only
    stamp = tuple((path.stat().st_mtime_ns, path.stat().st_size) for path in paths)
    return Dataset.from_generator(_write_rows, features, gen_kwargs={"paths": paths, "keys": keys, "stamp": stamp})


def _write_rows(paths: tuple[Path, ...], keys: tuple[str, ...] = (), stamp: tuple = ()) -> Iterator[dict]:
    for path in paths:
        for row in read_objects(path):
            yield {JSON_ROW: json.dumps(dict.fromkeys(keys) | row)}


def read_objects(path: Path) -> Iterator[dict]:
    """The objects of a JSON or JSONL file; `ValueError` naming a line that is not a JSON object."""
    with (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8-sig") as file:
        try:
            while (start := file.read(1)).isspace():
                pass
            file.seek(0)
            if start == "[":
                unit, numbered = "item", enumerate(_loads(file.read(), str(path)))
            else:
                lines = ((number, line) for number, line in enumerate(file, 1) if line.strip())
                unit, numbered = "line", ((number, _loads(line, f"{path}, line {number},")) for number, line in lines)
            for number, row in numbered:
                if not isinstance(row, dict):
                    raise ValueError(f"{path}, {unit} {number}, is not a JSON object with the columns of a row.")
                yield row
        except UnicodeDecodeError as error:
            raise ValueError(f"{path} is not UTF-8: {error}.") from error
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise ValueError(f"{path} is no complete gzip file: {error}.") from error


def _loads(text: str, where: str):
    try:
        return json.loads(text, object_pairs_hook=_unique)
    except DuplicateKey as error:
        raise ValueError(f"{where} has the key {str(error)!r} twice in one object: keep one of them.") from error
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{where} is not JSON: {error}. Give one object a line, or one list of objects.") from error


class DuplicateKey(ValueError):
    """A key that an object has twice, of which the parser would keep the last one."""


def _unique(pairs: list[tuple[str, object]]) -> dict:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise DuplicateKey(next(name for name in names if names.count(name) > 1))
    return found
