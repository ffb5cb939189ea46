"""
What is refused before the first step: settings, data and policies that would only fail, or train on nothing, later.

Each check raises a `ValueError` that says what is wrong, what was seen, and what to do.
"""

import inspect
import math
import os
from collections.abc import Callable

import torch
from datasets import Dataset, IterableDataset
from transformers import PreTrainedModel
from trl import GRPOConfig
from trl.data_utils import is_conversational


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
# Tokens that stand for something else than text: Gemma 3's has none in the embedding of its text models
PLACEHOLDERS = ("image_token", "audio_token", "video_token")


def check_dataset(dataset: Dataset | IterableDataset | None, args: GRPOConfig) -> None:
    """A training set without prompts, or with fewer than one generation batch takes. Of streams only columns are checked."""
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


def check_output_dir(args: GRPOConfig) -> None:
    """A folder that this process saves checkpoints to, and has no right to write."""
    if args.should_save and args.save_strategy != "no" and not os.access(args.output_dir, os.W_OK):
        raise ValueError(
            f"Checkpoints cannot be written to '{args.output_dir}', which is read-only here: give another output_dir, "
            "or save_strategy='no'."
        )


def check_reward_columns(dataset: Dataset | IterableDataset | None, reward_funcs: Callable | list | None) -> None:
    """
    A training set that lacks a column which a reward function needs.

    A function needs the columns of its arguments without default, and one of `function.answer_columns` if it has that
    attribute, as the rewards of this package do. Reward models and names of models are not checked.
    """
    columns = getattr(dataset, "column_names", None)
    if columns is None:
        return
    for function in reward_funcs if isinstance(reward_funcs, list) else [reward_funcs]:
        for alternatives in _needed_columns(function):
            if not set(alternatives) & set(columns):
                needed = " or ".join(f"'{name}'" for name in alternatives)
                raise ValueError(
                    f"The reward function '{getattr(function, '__name__', type(function).__name__)}' needs the column "
                    f"{needed}, but the training set has only {columns}: rename the column that holds it."
                )


def check_policy(model: PreTrainedModel, processing_class, dataset: Dataset | IterableDataset | None) -> None:
    """
    A policy without a trainable parameter, with tokens that have no embedding (placeholders of images, audio and video
    aside), or without the chat template that its prompts need. Streams are not read.
    """
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise ValueError(
            "No parameter of the model is trainable: load an adapter with "
            "`PeftModel.from_pretrained(..., is_trainable=True)`, or give a `peft_config`."
        )
    tokenizer = getattr(processing_class, "tokenizer", processing_class)
    num_embeddings = getattr(model.get_input_embeddings(), "num_embeddings", math.inf)
    beyond = {token: index for token, index in tokenizer.get_vocab().items() if index >= num_embeddings}
    for name in PLACEHOLDERS:
        beyond.pop(getattr(tokenizer, name, None), None)
    if beyond:
        first = min(beyond, key=beyond.get)
        raise ValueError(
            f"The tokenizer has {len(beyond)} tokens from {first!r} (id {beyond[first]}) on that the model, with "
            f"{num_embeddings} embeddings, does not know: give the model's own tokenizer as `processing_class`, or call "
            "`model.resize_token_embeddings(len(tokenizer))`."
        )
    # A tokenizer without the attribute writes chats by itself (mistral-common's)
    has_template = getattr(processing_class, "chat_template", "its own") is not None
    if not has_template and isinstance(dataset, Dataset) and len(dataset) > 0:
        if is_conversational({"prompt": dataset[0].get("prompt")}):
            raise ValueError(
                "The prompts are chats, but the tokenizer has no chat template: use prompts of plain text "
                "(prompt_format='plain' of this package's loaders), or set `processing_class.chat_template`."
            )


def check_loss_scaling(model: PreTrainedModel) -> None:
    """Trainable weights of 16 bits under fp16, whose loss scaler fails with the first step."""
    for parameter in model.parameters():
        if parameter.requires_grad and parameter.dtype in (torch.float16, torch.bfloat16):
            raise ValueError(
                f"The trainable weights are {parameter.dtype}, but fp16=True scales the loss and needs them in float32: "
                "load the model with dtype='float32', or train an adapter with a `peft_config`."
            )


def _needed_columns(function: Callable) -> list[tuple[str, ...]]:
    """What a reward function needs, as groups of columns of which one is enough."""
    if not callable(function) or hasattr(function, "forward"):  # the name of a reward model, or one
        return []
    needed = [tuple(function.answer_columns)] if hasattr(function, "answer_columns") else []
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:  # a builtin without a signature
        return needed
    for parameter in parameters:
        named = parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
        if named and parameter.default is parameter.empty and parameter.name not in REWARD_ARGUMENTS:
            needed.append((parameter.name,))
    return needed
