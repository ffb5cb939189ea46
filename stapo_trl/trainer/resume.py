"""
Exact resume: checkpoints hold what GRPOTrainer leaves out, and count once they are complete.

GRPOTrainer draws new completions when it resumes inside a generation batch, and goes through the prompts of a later
epoch in the order of the first. A run that is killed while it saves leaves a folder that looks like a checkpoint.
"""

import shutil
import signal
import warnings
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import reduce, send_to_device
from transformers import TrainerCallback
from transformers.trainer import TRAINER_STATE_NAME
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR
from trl import GRPOTrainer

from ..observe.files import list_checkpoints, read_state
from .collectives import sum_over_processes


# With another value of one of these, the rest of a generation batch belongs to other prompts or processes
LAYOUT = (
    "world_size",
    "per_device_train_batch_size",
    "gradient_accumulation_steps",
    "steps_per_generation",
    "num_iterations",
    "num_generations",
)


def last_complete_checkpoint(output_dir: str | Path) -> str | None:
    """
    The latest checkpoint of a run that was saved to its end.

    Args:
        output_dir (`str` or `Path`):
            Folder of the run. A missing one holds no checkpoint.

    Returns:
        `str`, *optional*: the folder of the checkpoint.
    """
    return next((str(folder) for folder in list_checkpoints(output_dir) if read_state(folder)), None)


class ExactResumeTrainer(GRPOTrainer):
    """
    [`~trl.GRPOTrainer`] that continues a run bit for bit where its checkpoint left it.

    The rest of the generation batch, and what was measured since the last log, are saved per process beside its random
    state (`generation_0.pt`, some megabytes at most). With another number of processes, or other batch sizes, they are
    dropped with a warning, and new completions are drawn as in GRPOTrainer.
    """

    _epochs_trained = 0

    def train(self, resume_from_checkpoint: str | bool | None = None, *args, **kwargs):
        """Trains; `True` resumes from the last *complete* checkpoint. An exception says from where to go on."""
        output_dir, state = self.args.output_dir, None
        if resume_from_checkpoint is True:
            resume_from_checkpoint = last_complete_checkpoint(output_dir)
            if resume_from_checkpoint is None:
                raise ValueError(f"There is no complete checkpoint in '{output_dir}' to resume from.")
        if resume_from_checkpoint:
            state = read_state(resume_from_checkpoint)
            if state is None:
                raise ValueError(
                    f"'{resume_from_checkpoint}' is no complete checkpoint (its {TRAINER_STATE_NAME}, which is written "
                    f"last, is missing or cut off). The last complete one is {last_complete_checkpoint(output_dir)}."
                )
        self._epochs_trained = int(state["epoch"] or 0) if state else 0
        try:
            return super().train(resume_from_checkpoint, *args, **kwargs)
        except Exception as error:
            last = last_complete_checkpoint(output_dir)
            where = f"resume_from_checkpoint=True goes on from {last}" if last else "there is no complete checkpoint"
            error.add_note(f"Training stopped after step {self.state.global_step}; {where}.")
            raise

    def _run_epoch(self, *args, **kwargs):
        if self.state.global_step < self.state.max_steps:
            super()._run_epoch(*args, **kwargs)
        else:  # a finished run was resumed: the loop would look at the number of steps after one more
            self.control.should_training_stop = True

    def _get_train_sampler(self, dataset=None):
        sampler = super()._get_train_sampler(dataset)
        for _ in range(self._epochs_trained):
            next(iter(sampler), None)  # the order of an epoch is drawn with its first prompt
        return sampler

    def _save_checkpoint(self, model, trial):
        if self.args.should_save:
            run_dir = Path(self._get_output_dir(trial=trial))
            own = run_dir / f"{PREFIX_CHECKPOINT_DIR}-{self.state.global_step}"
            (own / TRAINER_STATE_NAME).unlink(missing_ok=True)  # not complete from here on, if a former run left one
            if self.args.save_total_limit:
                # The ones that killed runs left would count, and could outlive the last complete one
                for folder in list_checkpoints(run_dir):
                    if folder != own and read_state(folder) is None:
                        shutil.rmtree(folder, ignore_errors=True)
        try:
            super()._save_checkpoint(model, trial)
        except Exception as error:  # its message may not help: torch calls a full disk an "unexpected pos"
            free = shutil.disk_usage(self.args.output_dir).free // 2**20
            error.add_note(
                f"The checkpoint of step {self.state.global_step} could not be saved ({free} MiB are free)."
            )
            raise

    def get_resume_state(self) -> dict[str, Any]:
        """What this process needs to go on. Subclasses add what they count."""
        is_inside = self._step % (self.args.steps_per_generation * self.num_iterations) != 0
        return {
            "layout": self._layout(),
            "step": self._step,
            "inputs": self._buffered_inputs if is_inside else None,
            # Of the steps since the last log, which the next one averages
            "metrics": {name: [float(value) for value in values] for name, values in self._metrics["train"].items()},
            "loss": self._tr_loss,
            "last_logged": self._globalstep_last_logged,
        }

    def set_resume_state(self, state: dict[str, Any]) -> None:
        self._step = state["step"]
        self._buffered_inputs = send_to_device(state["inputs"], self.accelerator.device)
        self._metrics["train"].update(state["metrics"])
        self._tr_loss = state["loss"].to(self.args.device)
        self._globalstep_last_logged = state["last_logged"]

    def _save_rng_state(self, output_dir: str) -> None:
        super()._save_rng_state(output_dir)
        torch.save(self.get_resume_state(), self._generation_file(output_dir))
        self.accelerator.wait_for_everyone()  # the file that makes it complete follows

    def _load_rng_state(self, checkpoint: str | None) -> None:
        super()._load_rng_state(checkpoint)
        if checkpoint is None:
            return
        file, state = self._generation_file(checkpoint), None
        if file.exists():
            state = torch.load(file, map_location="cpu", weights_only=True)
        fits = state is not None and state["layout"] == self._layout()
        # Generation is collective, so all processes draw anew, or none
        if sum_over_processes(self.accelerator, [float(fits)]) == [self.accelerator.num_processes]:
            self.set_resume_state(state)
        elif self.is_world_process_zero():
            found = "no generation batch" if state is None else f"a generation batch of {state['layout']}"
            warnings.warn(
                f"{checkpoint} holds {found}, and this run has {self._layout()}: it draws new completions, so it does "
                "not continue exactly as the uninterrupted run would have."
            )

    def _layout(self) -> dict[str, int]:
        return {name: getattr(self.args, name) for name in LAYOUT}

    def _generation_file(self, checkpoint: str) -> Path:
        return Path(checkpoint) / f"generation_{self.args.process_index}.pt"


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
