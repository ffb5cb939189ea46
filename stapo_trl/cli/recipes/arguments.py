"""Arguments of `stapo train` besides those of TRL, and the reward functions and data sets that they name."""

import importlib
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from datasets import load_dataset
from trl import DatasetMixtureConfig, ScriptArguments, get_dataset

from ... import rewards
from ...data import NAMES, find_loader
from ...trainer.stapo_config import STAPOConfig


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
