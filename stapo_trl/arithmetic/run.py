"""Training on the embedded task: the trainer, accuracy before and after, and the silenced tokens."""

import warnings
from collections.abc import Callable, Sequence

import torch
from datasets import disable_progress_bars
from rich.console import Console
from rich.table import Table
from tqdm.auto import tqdm
from transformers import AutoModelForCausalLM, AutoTokenizer, PrinterCallback, ProgressCallback, TrainerCallback
from transformers.utils import logging as transformers_logging
from trl.models import unwrap_model_for_generation

from ..observe.files import MetricsFile
from ..trainer.stapo import STAPOTrainer
from ..trainer.stapo_config import STAPOConfig
from .heldout import Accuracy, HeldOutAccuracy, measure_accuracy
from .problems import load_arithmetic
from .warm_start import WarmStart, get_warm_start


class ProgressBar(TrainerCallback):
    """A progress bar with a few of the logged numbers, on a terminal; `shown` maps their keys to their labels."""

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


def quiet_process() -> None:
    """One thread, as a second one costs more than it brings on a model this small, and no bars and warnings."""
    torch.set_num_threads(1)
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    disable_progress_bars()
    warnings.filterwarnings("ignore", category=FutureWarning)
    warnings.filterwarnings("ignore", message="'pin_memory' argument is set as true")


def build_trainer(
    args: STAPOConfig,
    reward_funcs: Callable | list[Callable],
    warm_start: WarmStart,
    heldout_every: int,
    heldout_samples: int = 0,
    callbacks: Sequence[TrainerCallback] = (),
) -> STAPOTrainer:
    """A trainer of the embedded task from this warm start, which logs held-out accuracy on 200 validation problems."""
    quiet_process()
    with args.main_process_first(desc="warm start"):
        folder = get_warm_start(warm_start, callbacks=[ProgressBar("Warm-up", {"loss": "loss"})])
    trainer = STAPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(folder),
        reward_funcs=reward_funcs,
        args=args,
        train_dataset=load_arithmetic("train", 4000, warm_start.num_terms, args.seed),
        processing_class=AutoTokenizer.from_pretrained(folder),
        callbacks=[MetricsFile(), *callbacks],
    )
    for callback in (PrinterCallback, ProgressCallback):
        trainer.remove_callback(callback)
    validation = load_arithmetic("validation", 200, warm_start.num_terms)
    trainer.add_callback(HeldOutAccuracy(trainer, validation, heldout_every, heldout_samples))
    if not args.disable_tqdm:
        shown = {"reward": "reward", "heldout/greedy_accuracy": "accuracy", "s2t/silenced_share": "silenced"}
        trainer.add_callback(ProgressBar("STAPO", shown))
    return trainer


def measure(trainer: STAPOTrainer, num_terms: int = 5, max_new_tokens: int | None = None) -> dict[str, Accuracy]:
    """Accuracy on 500 held-out problems: `"greedy"`, and `"sampled"` with four samples each."""
    test, length = load_arithmetic("test", 500, num_terms), max_new_tokens or trainer.args.max_completion_length
    # On every process alike: the forward of a sharded model is collective
    with unwrap_model_for_generation(trainer.model_wrapped, trainer.accelerator) as model:
        return {
            "greedy": measure_accuracy(model, trainer.processing_class, test, length),
            "sampled": measure_accuracy(model, trainer.processing_class, test, length, num_samples=4, temperature=1.0),
        }


def show_result(trainer: STAPOTrainer, before: dict[str, Accuracy], after: dict[str, Accuracy]) -> None:
    """Print tables of the accuracy before and after, and of the silenced tokens."""
    console = Console()
    console.print(f"500 held-out problems, {trainer.state.global_step} optimizer steps:")
    table = Table()
    for column in ("accuracy", "before", "after"):
        table.add_column(column)
    for decoding in before:
        table.add_row(decoding, str(before[decoding]), str(after[decoding]))
    console.print(table)

    silenced = trainer.silenced_token_ids
    shares = [entry["s2t/silenced_share"] for entry in trainer.state.log_history if "s2t/silenced_share" in entry]
    if silenced:
        count = f"{silenced.total()} silenced token{'s' if silenced.total() > 1 else ''}"
        console.print(f"{count}, {100 * sum(shares) / len(shares):.3f} % of all:")
        table = Table()
        table.add_column("token")
        table.add_column("times", justify="right")
        for token, count in silenced.most_common(10):
            table.add_row(repr(trainer.processing_class.decode([token])), str(count))
        console.print(table)
    console.print(
        f"To train further: stapo train --output_dir {trainer.args.output_dir} --resume_from_checkpoint true "
        f"--max_steps {trainer.args.max_steps + 240}",
        soft_wrap=True,
        markup=False,
    )
