"""What a training run shows and writes while it goes on: a bar, `metrics.jsonl`, held-out accuracy, and a clean stop."""

import contextlib
import json
import signal
import warnings
from pathlib import Path

import torch
from accelerate.utils import reduce
from datasets import Dataset
from tqdm.auto import tqdm
from transformers import TrainerCallback
from trl.models import unwrap_model_for_generation

from .heldout import Accuracy, measure_accuracy
from .whole_file import write_whole


class ProgressBar(TrainerCallback):
    """
    One bar with a few numbers; nothing where the output is no terminal.

    Args:
        title (`str`):
            Left of the bar.
        shown (`dict[str, str]`):
            Keys of the logs, and how to call them here.
    """

    def __init__(self, title: str, shown: dict[str, str]):
        self.title, self.shown, self.latest, self.bar = title, shown, {}, None

    def on_train_begin(self, args, state, control, **kwargs):
        if state.is_world_process_zero:
            # disable=None asks whether the output is a terminal
            self.bar = tqdm(total=state.max_steps, initial=state.global_step, desc=self.title, disable=None)

    def on_step_end(self, args, state, control, **kwargs):
        if self.bar is not None:
            self.bar.update()

    def on_log(self, args, state, control, logs=None, **kwargs):
        if self.bar is not None:
            numbers = {label: logs[key] for key, label in self.shown.items() if logs.get(key) is not None}
            self.latest |= {label: f"{float(number):.3g}" for label, number in numbers.items()}
            self.bar.set_postfix(self.latest)

    def on_train_end(self, args, state, control, **kwargs):
        if self.bar is not None:
            self.bar.close()


class MetricsFile(TrainerCallback):
    """
    Writes every log entry to `metrics.jsonl` in the run's folder, one JSON object a line.

    A resumed run begins with the entries that its checkpoint holds, so that each step stands in the file once. A disk
    that refuses ends the file with a warning, not the run.
    """

    path = None

    def on_train_begin(self, args, state, control, **kwargs):
        if not state.is_world_process_zero:
            return
        self.path = Path(args.output_dir) / "metrics.jsonl"
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(self.path, "".join(to_line(entry["step"], entry) for entry in state.log_history))
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
    Log entries of a run, in order.

    Args:
        path (`str` or `Path`):
            A `metrics.jsonl`. A missing file counts as empty; lines that are no JSON object, such as a last one that a
            killed run left unfinished, are passed over.

    Returns:
        `list[dict]`: one entry a line, each with its `step`.
    """
    text = Path(path).read_text(encoding="utf-8-sig", errors="replace") if Path(path).exists() else ""
    entries = []
    for line in text.split("\n"):  # JSON may hold signs at which `splitlines` would split
        with contextlib.suppress(ValueError, RecursionError):
            entries.append(json.loads(line))
    return [entry for entry in entries if isinstance(entry, dict)]


class HeldOutAccuracy(TrainerCallback):
    """
    Accuracy on held-out problems, logged with the step's other metrics as `heldout/greedy_accuracy`, and
    `heldout/sampled_accuracy` if samples are asked for.

    Args:
        trainer ([`STAPOTrainer`]):
            The trainer whose policy is measured.
        problems (`Dataset`):
            Held-out problems.
        every_steps (`int`):
            Steps between two measurements.
        num_samples (`int`, *optional*, defaults to `0`):
            Samples for each problem at temperature 1.
    """

    def __init__(self, trainer, problems: Dataset, every_steps: int, num_samples: int = 0):
        self.trainer, self.problems, self.every_steps, self.num_samples = trainer, problems, every_steps, num_samples

    def on_step_end(self, args, state, control, processing_class=None, **kwargs):
        if state.global_step % self.every_steps == 0:
            # On every process alike: the forward of a sharded model is collective
            with unwrap_model_for_generation(self.trainer.model_wrapped, self.trainer.accelerator) as model:
                what = (model, processing_class, self.problems, args.max_completion_length)
                self._log("greedy", measure_accuracy(*what))
                if self.num_samples > 0:
                    self._log("sampled", measure_accuracy(*what, self.num_samples, temperature=1.0))

    def _log(self, decoding: str, accuracy: Accuracy) -> None:
        self.trainer._metrics["train"][f"heldout/{decoding}_accuracy"].append(accuracy.mean)


class StopOnInterrupt(TrainerCallback):
    """
    On the first Ctrl-C or SIGTERM, ends the step that is running and saves a checkpoint; the second one kills.

    The signal reaches the processes at different moments, so they ask each other: all end after the same step.
    """

    stopped = False

    def on_train_begin(self, args, state, control, **kwargs):
        self.handlers = {number: signal.signal(number, self._request) for number in (signal.SIGINT, signal.SIGTERM)}

    def _request(self, number, frame):
        self.stopped = True
        signal.signal(number, self.handlers[number])

    def on_step_end(self, args, state, control, **kwargs):
        if reduce(torch.tensor(float(self.stopped), device=args.device)).item() > 0:
            self.stopped = control.should_save = control.should_training_stop = True

    def on_train_end(self, args, state, control, **kwargs):
        for number, handler in self.handlers.items():
            signal.signal(number, handler)
