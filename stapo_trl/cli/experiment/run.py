"""One run of an experiment: a method, a seed, a folder."""

import json
import time
import warnings
from pathlib import Path

import torch
from datasets import disable_progress_bars
from transformers import AutoModelForCausalLM, AutoTokenizer, PrinterCallback, ProgressCallback, TrainerCallback
from transformers.utils import logging as transformers_logging

from ...arithmetic.heldout import HeldOutAccuracy, measure_accuracy
from ...arithmetic.problems import load_arithmetic
from ...arithmetic.warm_start import get_warm_start
from ...observe.files import MetricsFile, write_atomically
from ...rewards import math_accuracy_reward
from ...trainer.resume import last_complete_checkpoint
from ...trainer.stapo import STAPOTrainer
from .settings import Experiment


NUM_TEST, NUM_VALIDATION, NUM_SAMPLES = 500, 200, 4


class StopAtDeadline(TrainerCallback):
    """Saves a checkpoint and ends the training once the clock has passed `deadline` (seconds of `time.time`)."""

    def __init__(self, deadline: float):
        self.deadline = deadline

    def on_step_end(self, args, state, control, **kwargs):
        if time.time() > self.deadline:
            control.should_save = True
            control.should_training_stop = True


def quiet_process() -> None:
    """Make this process one of several: a thread of its own, and no bars between those of the others."""
    torch.set_num_threads(1)
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    disable_progress_bars()
    warnings.filterwarnings("ignore", category=FutureWarning)
    warnings.filterwarnings("ignore", message="'pin_memory' argument is set as true")


def warm_up(experiment: Experiment, seed: int) -> None:
    """Train the warm start of this seed, if it is not cached."""
    quiet_process()
    get_warm_start(experiment.get_warm_start(seed))


def train_run(experiment: Experiment, method: str, seed: int, folder: Path, deadline: float = float("inf")) -> None:
    """
    Train one method with one seed, going on from the last checkpoint of its folder if there is one.

    Args:
        experiment ([`Experiment`]):
            The experiment.
        method (`str`):
            Name of the method.
        seed (`int`):
            Seed of the warm start, the problems, and the samples.
        folder (`Path`):
            Folder of the run. Its `result.json` is written last: `greedy` and `sampled` accuracy on held-out problems,
            and `seconds` of this call.
        deadline (`float`, *optional*):
            When to stop, in seconds of `time.time`.
    """
    start = time.time()
    quiet_process()
    settings = experiment.get_warm_start(seed)
    warm_start = get_warm_start(settings)
    model, tokenizer = AutoModelForCausalLM.from_pretrained(warm_start), AutoTokenizer.from_pretrained(warm_start)
    trainer = STAPOTrainer(
        model=model,
        reward_funcs=math_accuracy_reward,
        args=experiment.get_config(method, seed, folder),
        train_dataset=load_arithmetic("train", 4000, settings.num_terms, seed),
        processing_class=tokenizer,
        callbacks=[MetricsFile(), StopAtDeadline(deadline)],
    )
    for callback in (PrinterCallback, ProgressCallback):
        trainer.remove_callback(callback)
    validation = load_arithmetic("validation", NUM_VALIDATION, settings.num_terms)
    trainer.add_callback(HeldOutAccuracy(trainer, validation, experiment.heldout_every, num_samples=1))
    trainer.train(resume_from_checkpoint=last_complete_checkpoint(folder))
    if trainer.state.global_step < trainer.state.max_steps:
        return

    test = load_arithmetic("test", NUM_TEST, settings.num_terms)
    length = settings.max_new_tokens
    greedy = measure_accuracy(trainer.model, tokenizer, test, length)
    sampled = measure_accuracy(trainer.model, tokenizer, test, length, NUM_SAMPLES, temperature=1.0)
    result = {"greedy": greedy.mean, "sampled": sampled.mean, "seconds": time.time() - start}
    write_atomically(folder / "result.json", json.dumps(result))
    print(f"{method}, seed {seed}: greedy {greedy}, sampled {sampled}, {result['seconds']:.0f} s", flush=True)
