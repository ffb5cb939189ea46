"""One run of an experiment: a method, a seed, a folder."""

import json
import time
from pathlib import Path

from transformers import TrainerCallback

from ...arithmetic.run import build_trainer, measure, quiet_process
from ...arithmetic.warm_start import get_warm_start
from ...observe.files import write_atomically
from ...rewards import math_accuracy_reward
from ...trainer.resume import last_complete_checkpoint
from .settings import Experiment


class StopAtDeadline(TrainerCallback):
    """Saves a checkpoint and ends the training once `time.time()` has passed the deadline."""

    def __init__(self, deadline: float):
        self.deadline = deadline

    def on_step_end(self, args, state, control, **kwargs):
        if time.time() > self.deadline:
            control.should_save = True
            control.should_training_stop = True


def warm_up(experiment: Experiment, seed: int) -> None:
    """Train the warm start of this seed, if it is not cached."""
    quiet_process()
    get_warm_start(experiment.get_warm_start(seed))


def train_run(experiment: Experiment, method: str, seed: int, folder: Path, deadline: float = float("inf")) -> None:
    """
    Train one method with one seed until the deadline, resuming from the last checkpoint of its folder.

    Only a finished run has a `result.json`: held-out accuracy, `greedy` and `sampled`, and the `seconds` of this call.
    """
    start = time.time()
    quiet_process()
    warm_start = experiment.get_warm_start(seed)
    args, stop = experiment.get_config(method, seed, folder), StopAtDeadline(deadline)
    trainer = build_trainer(args, math_accuracy_reward, warm_start, experiment.heldout_every, 1, [stop])
    trainer.train(resume_from_checkpoint=last_complete_checkpoint(folder))
    if trainer.state.global_step < trainer.state.max_steps:
        return
    found = measure(trainer, warm_start.num_terms, warm_start.max_new_tokens)
    result = {decoding: accuracy.mean for decoding, accuracy in found.items()} | {"seconds": time.time() - start}
    write_atomically(folder / "result.json", json.dumps(result))
    print(
        f"{method}, seed {seed}: greedy {found['greedy']}, sampled {found['sampled']}, {result['seconds']:.0f} s",
        flush=True,
    )
