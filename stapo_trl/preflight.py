"""What [`STAPOTrainer`] refuses before its first step: data that could only fail, or train on nothing, later."""

import inspect
from collections.abc import Callable

from datasets import Dataset, IterableDataset
from trl import GRPOConfig


# What GRPOTrainer hands to a reward function besides the columns of the dataset
REWARD_ARGUMENTS = {
    "prompts",
    "completions",
    "completion_ids",
    "trainer_state",
    "log_extra",
    "log_metric",
    "environments",
}


def check_dataset(dataset: Dataset | IterableDataset | None, args: GRPOConfig) -> None:
    """
    Refuse a training set without prompts, or with fewer prompts than one generation batch.

    Args:
        dataset (`Dataset` or `IterableDataset`, *optional*):
            Training set. Of a streamed one only the columns are checked, where they are known.
        args ([`~trl.GRPOConfig`]):
            Its `generation_batch_size` and `num_generations` tell how many prompts one generation takes.

    Raises:
        `ValueError`: if the column `"prompt"` is missing or the set is too small.
    """
    columns = getattr(dataset, "column_names", None)
    if columns is not None and "prompt" not in columns:
        raise ValueError(
            f"The training set has no column 'prompt', only {columns}: rename the column that holds the problem."
        )
    prompts_per_generation = args.generation_batch_size // args.num_generations
    if isinstance(dataset, Dataset) and len(dataset) < prompts_per_generation:
        raise ValueError(
            f"The training set has {len(dataset)} prompts, but one generation batch takes {prompts_per_generation} "
            f"(generation_batch_size {args.generation_batch_size} / num_generations {args.num_generations}): add "
            "prompts or lower per_device_train_batch_size or steps_per_generation."
        )


def check_reward_columns(dataset: Dataset | IterableDataset | None, reward_funcs: Callable | list | None) -> None:
    """
    Refuse a training set that lacks a column which a reward function takes as a required argument.

    Args:
        dataset (`Dataset` or `IterableDataset`, *optional*):
            Training set.
        reward_funcs (`Callable`, or list of them, *optional*):
            Reward functions. Reward models and names of models are passed over.

    Raises:
        `ValueError`: naming the function, the column, and the columns there are.

    Example:

    ```python
    >>> check_reward_columns(Dataset.from_dict({"prompt": ["1+1="], "answer": ["2"]}), math_accuracy_reward)
    ValueError: The reward function 'math_accuracy_reward' needs the column 'solution', but the training set has only ...
    ```
    """
    columns = getattr(dataset, "column_names", None)
    if columns is None:
        return
    for function in reward_funcs if isinstance(reward_funcs, list) else [reward_funcs]:
        if not callable(function) or hasattr(function, "forward"):
            continue
        try:
            parameters = inspect.signature(function).parameters.values()
        except ValueError:  # a builtin without a signature
            continue
        for parameter in parameters:
            named = parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
            required = named and parameter.default is parameter.empty
            if required and parameter.name not in REWARD_ARGUMENTS and parameter.name not in columns:
                raise ValueError(
                    f"The reward function '{getattr(function, '__name__', type(function).__name__)}' needs the column "
                    f"'{parameter.name}', but the training set has only {columns}: rename the column that holds it."
                )
