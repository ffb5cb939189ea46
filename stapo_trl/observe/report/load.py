"""What a run's folder holds, as tables: its metrics and its token log."""

from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pyarrow as pa
from transformers.trainer import TRAINER_STATE_NAME

from ..files import list_checkpoints, read_metrics, read_state
from ..text import show_text
from ..token_log import read_token_log


LARGEST = 1e100  # matplotlib cannot draw axes beyond it


@dataclass
class Run:
    name: str
    metrics: pd.DataFrame  # a row for each optimizer step, a column for each key
    tokens: pa.Table  # the token log, see `stapo_trl.observe.token_log`; without rows if there is none
    completions: pa.Table
    settings: dict[str, str]  # prob_threshold, entropy_quantile, selection and model, where the token log has them

    def series(self, *keys: str) -> pd.Series:
        """Finite values by step of the first of these metrics that was logged, empty if none was."""
        for key in keys:
            if key in self.metrics:
                return self.metrics[key].dropna().astype(float)
        return pd.Series(dtype=float)

    def number(self, setting: str) -> float | None:
        """A setting as a number in (0, 1), or `None` if the log has none."""
        try:
            number = float(self.settings[setting])
        except (KeyError, ValueError):
            return None
        return number if 0 < number < 1 else None


def load_runs(folders: list[Path]) -> list[Run]:
    """Runs named after their folders, with the parent's name too where two names are equal."""
    paths = [folder.resolve() for folder in folders]
    names = [path.name for path in paths]
    names = [
        f"{path.parent.name}/{name}" if names.count(name) > 1 else name
        for path, name in zip(paths, names, strict=True)
    ]
    return [load_run(folder, name) for folder, name in zip(folders, names, strict=True)]


def load_run(folder: Path, name: str) -> Run:
    tokens, completions = (read_token_log(folder, table) for table in ("tokens", "completions"))
    entries = [_keep_numbers(entry) for entry in _read_log(folder) if _has_step(entry)]
    if not entries and not tokens.num_rows and not completions.num_rows:
        raise ValueError(
            f"Nothing to report in {folder}: there is no optimizer step in metrics.jsonl or a checkpoint's "
            f"{TRAINER_STATE_NAME}, and no token_log. Give the output_dir of a training run, or of `stapo score`."
        )
    # A step may have several entries, of which the last with a key counts
    metrics = pd.DataFrame(entries or {"step": []}).groupby("step").last()
    metadata = tokens.schema.metadata or completions.schema.metadata or {}
    settings = {key.decode(errors="replace"): value.decode(errors="replace") for key, value in metadata.items()}
    return Run(show_text(name), metrics, tokens, completions, settings)


def _read_log(folder: Path) -> list:
    """Entries of `metrics.jsonl`, or else TRL's log: that of the run's end, or of its newest complete checkpoint."""
    entries = read_metrics(folder / "metrics.jsonl")
    states = (read_state(place) for place in [folder, *list_checkpoints(folder)])
    histories = (state.get("log_history") for state in states if isinstance(state, dict))
    return entries or next((history for history in histories if isinstance(history, list)), [])


def _has_step(entry: object) -> bool:
    return isinstance(entry, dict) and type(entry.get("step")) is int and 0 <= entry["step"] < 2**31


def _keep_numbers(entry: dict) -> dict[str, float]:
    return {
        show_text(key): value
        for key, value in entry.items()
        if isinstance(value, int | float) and abs(value) < LARGEST  # which NaN is not
    }
