"""Files of a run: written atomically, and its metrics and checkpoints."""

import contextlib
import json
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from transformers import TrainerCallback
from transformers.trainer import TRAINER_STATE_NAME
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR


def write_atomically(path: str | Path, text: str) -> None:
    """Write a text file, in UTF-8, whole or not at all: a killed run leaves the former one."""
    with replace_atomically(path) as unfinished, open(unfinished, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


@contextmanager
def replace_atomically(path: str | Path) -> Iterator[Path]:
    """A file to write to, hidden beside the one that it becomes when the block ends without an error."""
    path = Path(path)
    unfinished = path.with_name(f".{path.name}")
    yield unfinished
    os.replace(unfinished, path)


class MetricsFile(TrainerCallback):
    """
    Writes every log entry to `metrics.jsonl` in the run's folder, one JSON object a line.

    A resumed run begins with the entries that its checkpoint holds, so that each step stands in the file once. A full
    disk ends the file with a warning, not the run.
    """

    path = None

    def on_train_begin(self, args, state, control, **kwargs):
        if not state.is_world_process_zero:
            return
        self.path = Path(args.output_dir) / "metrics.jsonl"
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(self.path, "".join(to_line(entry["step"], entry) for entry in state.log_history))
        except OSError as error:
            self._give_up(error)

    def on_log(self, args, state, control, logs=None, **kwargs):
        if self.path is not None:
            try:
                with open(self.path, "a") as file:
                    file.write(to_line(state.global_step, logs))
            except OSError as error:
                self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        warnings.warn(f"{self.path} ends here and training goes on, as it cannot be written: {error}.")
        self.path = None


def to_line(step: int, logs: dict) -> str:
    return json.dumps({"step": step} | logs) + "\n"


def read_metrics(path: str | Path) -> list[dict]:
    """
    Log entries of a `metrics.jsonl`, in order, each with its `step`; none if the file is missing.

    Lines that are no JSON object, such as the last one of a killed run, are skipped.
    """
    text = Path(path).read_text(encoding="utf-8-sig", errors="replace") if Path(path).exists() else ""
    entries = []
    for line in text.split("\n"):  # JSON may hold signs at which `splitlines` would split
        with contextlib.suppress(ValueError, RecursionError):
            entries.append(json.loads(line))
    return [entry for entry in entries if isinstance(entry, dict)]


def read_state(checkpoint: str | Path) -> dict | None:
    """The trainer's state in a checkpoint, or `None` if it is not complete: this file is written last."""
    try:
        return json.loads((Path(checkpoint) / TRAINER_STATE_NAME).read_text())
    except (OSError, ValueError):  # missing, cut off, or not a text
        return None


def list_checkpoints(output_dir: str | Path) -> list[Path]:
    """Folders of the checkpoints in a run's folder, complete or not, the latest step first."""
    steps = {}
    for folder in Path(output_dir).glob(f"{PREFIX_CHECKPOINT_DIR}-*"):
        number = folder.name.removeprefix(f"{PREFIX_CHECKPOINT_DIR}-")
        if number.isdecimal():
            steps[int(number)] = folder
    return [steps[step] for step in sorted(steps, reverse=True)]
