"""Reads CSV files as they are written: 025 is not 25, and NA is not nothing."""

from pathlib import Path

import pandas as pd
from datasets import Features, Value


def keep_text(path: str | Path, separator: str = ",") -> dict:
    """Options for the CSV reader of `datasets` that keep every cell as text; `ValueError` for a file without rows."""
    names = pd.read_csv(path, nrows=1, sep=separator, dtype=str, header=None).iloc[0].fillna("").tolist()
    if len(names) == 1:
        for other, title in {";": "semicolons", "\t": "tabs", "|": "bars", ",": "commas"}.items():
            if other != separator and other in names[0]:
                wanted = "tabs" if separator == "\t" else "commas"
                raise ValueError(f"its columns are separated by {title}, not by {wanted}: save it with {wanted}")
    twice = sorted({name for name in names if name and names.count(name) > 1})
    if twice:
        raise ValueError(f"it has several columns named {', '.join(map(repr, twice))}: rename or remove some")
    first = pd.read_csv(path, nrows=1, sep=separator, dtype=str)
    if not isinstance(first.index, pd.RangeIndex):  # pandas would shift every cell by one column
        raise ValueError("its first row has more cells than there are columns: put quotes around texts with commas")
    if first.empty:
        raise ValueError("it has no rows")
    features = Features({name: Value("string") for name in first.columns})
    return {"sep": separator, "features": features, "keep_default_na": False}
