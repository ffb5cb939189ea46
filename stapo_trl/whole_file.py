"""Files that are there whole or not at all: a killed run leaves the former one."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def write_whole(path: str | Path, text: str) -> None:
    """
    Write a text file, in UTF-8, whole or not at all.

    Args:
        path (`str` or `Path`):
            The file.
        text (`str`):
            Its content.
    """
    with replacing(path) as unfinished, open(unfinished, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """
    A file to write to, hidden beside the one that it becomes when the block ends without an error.

    Args:
        path (`str` or `Path`):
            The file that is written.
    """
    path = Path(path)
    unfinished = path.with_name(f".{path.name}")
    yield unfinished
    os.replace(unfinished, path)
