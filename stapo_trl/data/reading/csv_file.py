"""CSV files, read as they are written: 025 is not 25, and NA is not nothing."""

from pathlib import Path

import pandas as pd
from datasets import Features, Value


def keep_text(path: str | Path, separator: str = ",") -> dict:
    """
    Options for the CSV reader of `datasets` that keep every cell as the text that it is.

    Args:
        path (`str` or `Path`):
            The file.
        separator (`str`, defaults to `","`):
            What stands between cells.

    Returns:
        `dict`

    Raises:
        `ValueError`: for a file without rows, and one whose first row has more cells than there are columns.
    """
    first = pd.read_csv(path, nrows=1, sep=separator, dtype=str)
    if not isinstance(first.index, pd.RangeIndex):  # what stands too much would move every cell to another column
        raise ValueError("its first row has more cells than there are columns: put quotes around texts with commas")
    if first.empty:
        raise ValueError("it has no rows")
    features = Features({name: Value("string") for name in first.columns})
    return {"sep": separator, "features": features, "keep_default_na": False}
