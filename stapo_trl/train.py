"""
`stapo train`: the embedded recipe without arguments, any GRPO script's job with them.

The arguments are those of `trl grpo`, parsed by TRL's own parser: [`STAPOConfig`], TRL's `ModelConfig`, its dataset
mixture, and a YAML file behind `--config` that the command line overrides.
"""

import importlib
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

import torch
from datasets import disable_progress_bars, load_dataset
from rich.console import Console
from rich.table import Table
from transformers import AutoModelForCausalLM, AutoTokenizer, PrinterCallback, ProgressCallback
from transformers.utils import is_bitsandbytes_available
from transformers.utils import logging as transformers_logging
from trl import (
    DatasetMixtureConfig,
    ModelConfig,
    ScriptArguments,
    get_dataset,
    get_peft_config,
    get_quantization_config,
)
from trl.models import unwrap_model_for_generation

from . import rewards
from .data import NAMES, find_loader
from .data.arithmetic import load_arithmetic
from .heldout import Accuracy, measure_accuracy
from .progress import HeldOutAccuracy, MetricsFile, ProgressBar, StopOnInterrupt
from .recipes.arguments import RecipeParser
from .stapo_config import STAPOConfig
from .stapo_trainer import STAPOTrainer


EMBEDDED = "embedded/arithmetic"  # the name of both the model and the data of the embedded recipe
REWARDS = [
    "math_accuracy_reward",
    "strict_math_accuracy_reward",
    "boxed_format_reward",
    "think_format_reward",
    "reasoning_gym_reward",
]


@dataclass
class TrainArguments(ScriptArguments):
    """
    Arguments of `stapo train` besides those of the trainer, the model and the dataset mixture.

    Args:
        reward_funcs (`list[str]`, *optional*, defaults to `["math_accuracy_reward"]`):
            Reward functions: names from `stapo_trl.rewards`, `"soft_overlong_punishment"` (over the last fifth of
            `max_completion_length`), or dotted paths such as `my_module.my_reward`.
        prompt_format (`str`, *optional*, defaults to `"chat"`):
            `"chat"`, or `"plain"` for models without a chat template; for the data sets of `stapo_trl.data`, which are
            `--dataset_name dapo-math-17k`, `gsm8k`, `math`, or a local file.
        problem_column (`str`, *optional*):
            Column of the problem in a local file, if its name does not tell.
        solution_column (`str`, *optional*):
            Column of the gold answer in a local file, if its name does not tell.
    """

    reward_funcs: list[str] = field(
        default_factory=lambda: ["math_accuracy_reward"],
        metadata={
            "help": f"Reward functions: {', '.join(REWARDS)}, soft_overlong_punishment (over the last fifth of "
            "max_completion_length), or dotted paths such as my_module.my_reward."
        },
    )
    prompt_format: str = field(
        default="chat",
        metadata={"help": f"chat or plain, for --dataset_name {', '.join(NAMES)} or a local file."},
    )
    problem_column: str | None = field(
        default=None, metadata={"help": "Column of the problem in a local file, if its name does not tell."}
    )
    solution_column: str | None = field(
        default=None, metadata={"help": "Column of the gold answer in a local file, if its name does not tell."}
    )


def get_reward_func(name: str, args: STAPOConfig) -> Callable:
    """
    The reward function of this name.

    Args:
        name (`str`):
            See [`TrainArguments`]. A dotted path is imported, with the working directory on the path.
        args ([`STAPOConfig`]):
            Gives the lengths of the overlong punishment.

    Returns:
        `Callable`: a function in TRL's calling convention.

    Raises:
        `ValueError`: if there is no such function.
    """
    if name in REWARDS:
        return getattr(rewards, name)
    if name == "soft_overlong_punishment":
        length = args.max_completion_length
        return rewards.get_soft_overlong_punishment(length, length // 5, args.mask_truncated_completions)
    module, _, function = name.rpartition(".")
    if module:
        sys.path.insert(0, os.getcwd())
        try:
            return getattr(importlib.import_module(module), function)
        except (ImportError, AttributeError) as error:
            raise ValueError(f"Could not import the reward function '{name}': {error}.") from error
    raise ValueError(
        f"Unknown reward function '{name}': give one of {REWARDS}, 'soft_overlong_punishment', or a dotted path."
    )


def get_datasets(script_args: TrainArguments, mixture: DatasetMixtureConfig, evaluates: bool):
    """Training set, and the evaluation set if the trainer evaluates."""
    if mixture.datasets:
        dataset = get_dataset(mixture)
    elif script_args.dataset_name and (load := find_loader(script_args.dataset_name)):
        columns = {"problem": script_args.problem_column, "solution": script_args.solution_column}
        load = partial(
            load,
            columns={part: name for part, name in columns.items() if name},
            prompt_format=script_args.prompt_format,
            streaming=script_args.dataset_streaming,
            unusable="drop",
            **({"config": script_args.dataset_config} if script_args.dataset_config else {}),
        )
        train_dataset = load(split=script_args.dataset_train_split)
        return train_dataset, load(split=script_args.dataset_test_split) if evaluates else None
    elif script_args.dataset_name:
        dataset = load_dataset(
            script_args.dataset_name, name=script_args.dataset_config, streaming=script_args.dataset_streaming
        )
    else:
        raise ValueError("No data to train on: give --dataset_name, or `datasets` in the configuration file.")
    return dataset[script_args.dataset_train_split], dataset[script_args.dataset_test_split] if evaluates else None


@contextmanager
def tell_mistakes(parser: RecipeParser) -> Iterator[None]:
    """Ends the command with one sentence for what is wrong with its reward functions, data or model."""
    try:
        yield
    except (ValueError, OSError) as error:
        parser.error(str(error))


def main(argv: Sequence[str]) -> None:
    """
    Train, and save the model, its metrics and their picture in the run's folder.

    Args:
        argv (`Sequence[str]`):
            Command-line arguments after `stapo train`. Without a configuration file, a model and a dataset, the
            embedded recipe gives the settings that they leave open.
    """
    parser = RecipeParser((TrainArguments, STAPOConfig, ModelConfig, DatasetMixtureConfig), prog="stapo train")
    options, settings, about, words = parser.read_words(argv, default="arithmetic")
    if options.dry_run:
        from .dry_run import dry_run

        return dry_run(settings, words, about, options.num_processes)
    # TRL's name of the field, which a recipe cannot avoid
    warnings.filterwarnings("ignore", message="`gradient_checkpointing` is deprecated", category=FutureWarning)
    script_args, args, model_args, mixture = parser.parse(settings, words)
    if model_args.model_name_or_path is None:
        parser.error("--model_name_or_path is missing: give a model, or no model and no data for the embedded recipe.")
    quantization_config, peft_config = get_quantization_config(model_args), get_peft_config(model_args)
    if quantization_config is not None and not is_bitsandbytes_available():
        parser.error("--load_in_4bit and --load_in_8bit need bitsandbytes: pip install -U bitsandbytes")
    with tell_mistakes(parser):
        reward_funcs = [get_reward_func(name, args) for name in script_args.reward_funcs]
    if model_args.model_name_or_path == EMBEDDED:
        if quantization_config is not None or peft_config is not None:
            parser.error(
                "The embedded recipe trains all weights of its own model: give --model_name_or_path and --dataset_name "
                "to train an adapter or a quantised model."
            )
        train_embedded(args, reward_funcs)
        return

    args.model_init_kwargs = {
        "revision": model_args.model_revision,
        "attn_implementation": model_args.attn_implementation,
        "dtype": model_args.dtype,
        **(args.model_init_kwargs or {}),
    }
    with tell_mistakes(parser):
        train_dataset, eval_dataset = get_datasets(script_args, mixture, args.eval_strategy != "no")
        trainer = STAPOTrainer(
            model=model_args.model_name_or_path,
            reward_funcs=reward_funcs,
            args=args,
            train_dataset=train_dataset,
            eval_dataset=eval_dataset,
            quantization_config=quantization_config,
            peft_config=peft_config,
            callbacks=[MetricsFile()],
        )
    train(trainer)
    if args.push_to_hub:
        trainer.push_to_hub(dataset_name=script_args.dataset_name)


def train(trainer: STAPOTrainer) -> None:
    """Train until the end or an interrupt, then save the model and draw the metrics."""
    args = trainer.args
    stop = StopOnInterrupt()
    trainer.add_callback(stop)
    resume = args.resume_from_checkpoint
    if isinstance(resume, str) and resume.lower() == "true":
        resume = True  # the last checkpoint of the folder; any other text is the path of one
    trainer.train(resume_from_checkpoint=resume)
    trainer.save_model(args.output_dir)
    if trainer.is_world_process_zero():
        print(f"Model and metrics saved to {args.output_dir}.")
        if stop.stopped:
            print(
                "Interrupted: repeat the command with --resume_from_checkpoint true to go on from the last checkpoint."
            )
        if not trainer.state.log_history:  # stopped before anything was logged
            return
        try:
            from .report.curves import draw_run

            print(f"Picture of the run: {draw_run(args.output_dir)}. The whole report: stapo report {args.output_dir}")
        except ImportError:
            print('No picture without matplotlib: pip install "stapo-trl[report]".')


def train_embedded(args: STAPOConfig, reward_funcs: list[Callable]) -> None:
    """
    The embedded recipe: warm up, measure, train with STAPO, measure again, and show what was silenced.

    Args:
        args ([`STAPOConfig`]):
            Settings of the training.
        reward_funcs (`list[Callable]`):
            Reward functions.
    """
    from .warm_start import WarmStart, get_warm_start

    console = Console()
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    disable_progress_bars()
    warnings.filterwarnings("ignore", category=FutureWarning)
    warnings.filterwarnings("ignore", message="'pin_memory' argument is set as true")
    torch.set_num_threads(1)  # on a model this small a second thread costs more than it brings
    with args.main_process_first(desc="warm start"):
        folder = get_warm_start(WarmStart(seed=args.seed), callbacks=[ProgressBar("Warm-up", {"loss": "loss"})])
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    test = load_arithmetic("test", 500)
    trainer = STAPOTrainer(
        model=model,
        reward_funcs=reward_funcs,
        args=args,
        train_dataset=load_arithmetic("train", 4000, seed=args.seed),
        processing_class=tokenizer,
        callbacks=[MetricsFile()],
    )
    for callback in (PrinterCallback, ProgressCallback):
        trainer.remove_callback(callback)
    trainer.add_callback(HeldOutAccuracy(trainer, load_arithmetic("validation", 200), every_steps=20))
    if not args.disable_tqdm:
        shown = {"reward": "reward", "heldout/greedy_accuracy": "accuracy", "s2t/silenced_share": "silenced"}
        trainer.add_callback(ProgressBar("STAPO", shown))

    def measure() -> dict[str, Accuracy]:
        length = args.max_completion_length
        # On every process alike: the forward of a sharded model is collective
        with unwrap_model_for_generation(trainer.model_wrapped, trainer.accelerator) as model:
            return {
                "greedy": measure_accuracy(model, tokenizer, test, length),
                "sampled": measure_accuracy(model, tokenizer, test, length, num_samples=4, temperature=1.0),
            }

    before = measure()
    train(trainer)
    after = measure()
    if trainer.is_world_process_zero():
        show_result(console, trainer, before, after)


def show_result(console: Console, trainer: STAPOTrainer, before: dict, after: dict) -> None:
    """Tables of accuracy before and after, and of the tokens that were silenced."""
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
        f"Go on with: stapo train --output_dir {trainer.args.output_dir} --resume_from_checkpoint true "
        f"--max_steps {trainer.args.max_steps + 240}",
        soft_wrap=True,
        markup=False,
    )
