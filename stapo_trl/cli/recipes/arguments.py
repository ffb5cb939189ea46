"""Arguments of `stapo train` besides those of TRL, and the reward functions and data sets that they name."""

import importlib
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field

from datasets import load_dataset
from trl import DatasetMixtureConfig, ScriptArguments, get_dataset

from ... import rewards
from ...data import NAMES, find_loader
from ...trainer.stapo_config import STAPOConfig


EMBEDDED = "embedded/arithmetic"  # names the model and the data of the embedded recipe
REWARDS = [
    "math_accuracy_reward",
    "strict_math_accuracy_reward",
    "boxed_format_reward",
    "think_format_reward",
    "reasoning_gym_reward",
]


@dataclass
class TrainArguments(ScriptArguments):
    """Arguments of `stapo train` besides those of the trainer, the model and the dataset mixture: see their help."""

    reward_funcs: list[str] = field(
        default_factory=lambda: ["math_accuracy_reward"],
        metadata={
            "help": f"Reward functions: {', '.join(REWARDS)}, soft_overlong_punishment (over the last fifth of "
            "max_completion_length), or dotted paths such as my_module.my_reward."
        },
    )
    prompt_format: str = field(
        default="chat",
        metadata={
            "help": f"chat, or plain for a model without a chat template; with --dataset_name {', '.join(NAMES)} or a "
            "local file."
        },
    )
    problem_column: str | None = field(
        default=None, metadata={"help": "Column of the problem in a local file, where its name is not a usual one."}
    )
    solution_column: str | None = field(
        default=None,
        metadata={"help": "Column of the gold answer in a local file, where its name is not a usual one."},
    )


def get_reward_func(name: str, args: STAPOConfig) -> Callable:
    """The reward function of this name; a dotted path is imported, also from the working directory."""
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
    splits = [script_args.dataset_train_split] + [script_args.dataset_test_split] * evaluates
    if mixture.datasets:
        dataset = get_dataset(mixture)
    elif not script_args.dataset_name:
        raise ValueError("No data to train on: give --dataset_name, or `datasets` in the configuration file.")
    elif load := find_loader(script_args.dataset_name):
        columns = {"problem": script_args.problem_column, "solution": script_args.solution_column}
        options = {
            "columns": {part: name for part, name in columns.items() if name},
            "prompt_format": script_args.prompt_format,
            "streaming": script_args.dataset_streaming,
            "unusable": "drop",
        }
        if script_args.dataset_config:
            options["config"] = script_args.dataset_config
        dataset = {split: load(split=split, **options) for split in splits}
    else:
        dataset = load_dataset(
            script_args.dataset_name, name=script_args.dataset_config, streaming=script_args.dataset_streaming
        )
    return dataset[splits[0]], dataset[splits[1]] if evaluates else None
