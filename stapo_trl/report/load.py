"""What a run's folder holds, as tables: its metrics and its token log."""

import json
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa

from ..progress import read_metrics
from ..token_log import read_token_log
from ..visible import show_text


@dataclass
class Run:
    """
    A run that is reported.

    Args:
        name (`str`):
            How the report calls it.
        metrics (`pd.DataFrame`):
            Logged metrics: a row for each step, which is the index; a column for each key.
        tokens, completions (`pa.Table`):
            The token log, see [`stapo_trl.token_log`]; without rows if there is none.
        settings (`dict[str, str]`):
            `prob_threshold`, `entropy_quantile`, `selection` and `model`, as far as the token log names them.
    """

    name: str
    metrics: pd.DataFrame
    tokens: pa.Table
    completions: pa.Table
    settings: dict[str, str]

    def series(self, *keys: str) -> pd.Series:
        """The first of these metrics that was logged: finite values by step, empty if none was."""
        for key in keys:
            if key in self.metrics:
                values = pd.to_numeric(self.metrics[key], errors="coerce").astype(float)
                values = values[np.isfinite(values)]
                if len(values) > 0:
                    return values
        return pd.Series(dtype=float)

    def number(self, setting: str) -> float | None:
        """A setting as a number, or `None` if the log does not name it."""
        return float(self.settings[setting]) if setting in self.settings else None


def load_runs(folders: list[Path]) -> list[Run]:
    """
    Load the folders of several runs.

    Args:
        folders (`list[Path]`):
            The `output_dir` of trainings, or of `stapo score`.

    Returns:
        `list[Run]`: named after their folders; with the parent's name too where two names are equal.

    Raises:
        `ValueError`: if a folder is missing or holds nothing to report.
    """
    paths = [folder.resolve() for folder in folders]
    names = [path.name for path in paths]
    names = [
        f"{path.parent.name}/{name}" if names.count(name) > 1 else name
        for path, name in zip(paths, names, strict=True)
    ]
    return [load_run(folder, name) for folder, name in zip(folders, names, strict=True)]


def load_run(folder: Path, name: str) -> Run:
    """See [`load_runs`]."""
    try:
        tokens, completions = (read_token_log(folder, table) for table in ("tokens", "completions"))
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise ValueError(f"The token log in {folder} cannot be read: {error}.") from error
    entries = [entry for entry in _read_log(folder) if isinstance(entry, dict) and isinstance(entry.get("step"), int)]
    if not entries and not tokens.num_rows and not completions.num_rows:
        raise ValueError(
            f"Nothing to report in {folder}: it holds no metrics.jsonl, no trainer_state.json and no token_log. Give "
            "the output_dir of a training run, or of `stapo score`."
        )
    metrics = (
        pd.DataFrame(entries or {"step": []}).groupby("step").last()
    )  # of each key, if a step has several entries
    metadata = tokens.schema.metadata or completions.schema.metadata or {}
    settings = {key.decode(): value.decode() for key, value in metadata.items()}
    return Run(show_text(name), metrics, tokens, completions, settings)


def _read_log(folder: Path) -> list:
    """Entries of `metrics.jsonl`, or else of TRL's newest `trainer_state.json`."""
    entries = read_metrics(folder / "metrics.jsonl")
    if entries:
        return entries
    states = [path for path in folder.glob("checkpoint-*/trainer_state.json") if _step_of(path) >= 0]
    states = sorted(states, key=_step_of) + [path for path in [folder / "trainer_state.json"] if path.exists()]
    return json.loads(states[-1].read_text())["log_history"] if states else []


def _step_of(state: Path) -> int:
    number = re.fullmatch(r"checkpoint-(\d+)", state.parent.name)
    return int(number[1]) if number else -1
