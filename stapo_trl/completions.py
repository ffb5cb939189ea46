"""Saved completions: prompts, what was answered to them, and the advantages that GRPO would give."""

import json
from dataclasses import dataclass
from pathlib import Path

import torch
from datasets import Dataset, load_dataset
from datasets.exceptions import DatasetGenerationError
from transformers import PreTrainedTokenizerBase

from .groups import have_spread


READERS = {".jsonl": "json", ".json": "json", ".parquet": "parquet"}
NAMES = {
    "prompt": ("prompt", "question", "problem"),
    "completion": ("completion", "response"),
    "reward": ("reward", "score"),
}


@dataclass
class Completion:
    """
    One completion.

    Args:
        problem_id (`str`):
            The same for all completions of a prompt.
        prompt_ids, completion_ids (`list[int]`):
            Tokens, without padding.
        reward (`float` or `None`):
            Reward, if it is known.
        advantage (`float`):
            Advantage.
    """

    problem_id: str
    prompt_ids: list[int]
    completion_ids: list[int]
    reward: float | None
    advantage: float


def read_rows(path: str | Path, prompt=None, completion=None, reward=None) -> Dataset:
    """
    Read a file of completions, with its columns under the names `prompt`, `completion` and `reward`.

    Args:
        path (`str` or `Path`):
            A `.jsonl`, `.json` or `.parquet` file.
        prompt, completion, reward (`str`, *optional*):
            Names of the columns in the file. By default the first of `NAMES` that it has.

    Returns:
        `Dataset`.

    Raises:
        `ValueError`: for another kind of file, one that is damaged, or if a column is missing.
    """
    path = Path(path)
    if not path.is_file() or path.suffix not in READERS:
        raise ValueError(f"Cannot read {path}: give an existing file that ends in {', '.join(READERS)}.")
    try:
        rows = load_dataset(READERS[path.suffix], data_files=str(path), split="train")
    except DatasetGenerationError as error:
        raise ValueError(f"Cannot read {path}: {error.__cause__ or error}") from error
    found = rows.column_names
    optional = {"completion": "completion_ids" in found, "reward": "advantage" in found}
    for name, given in (("prompt", prompt), ("completion", completion), ("reward", reward)):
        options = NAMES[name] if given is None else (given,)
        column = next((option for option in options if option in found), None)
        if column is None and (given is not None or not optional.get(name)):
            raise ValueError(
                f"{path.name} has no column {' or '.join(map(repr, options))}, only {found}: name the one with the "
                f"{name}s by --{name}_column."
            )
        if column not in (None, name):
            rows = rows.remove_columns(name) if name in found else rows
            rows = rows.rename_column(column, name)
    return rows


def tokenize_rows(rows: Dataset, tokenizer: PreTrainedTokenizerBase) -> list[Completion]:
    """
    Tokenise completions as GRPOTrainer has them: the prompt alone, by the chat template if it is a conversation, and the
    completion alone.

    Saved text tokenised again can differ from the tokens that were sampled, and lacks the end-of-sequence token. A
    column `completion_ids` avoids both.

    Args:
        rows (`Dataset`):
            Rows with `prompt` and `completion` (text or messages), or `completion_ids`; `reward` or `advantage`; and
            `problem_id` if prompts do not tell problems apart.
        tokenizer (`PreTrainedTokenizerBase`):
            The model's tokenizer.

    Returns:
        `list[Completion]`: in the order of the rows; those without a token are left out.
    """
    has = set(rows.column_names)
    keys = [str(row["problem_id"]) if "problem_id" in has else json.dumps(row["prompt"]) for row in rows]
    numbers = {key: number for number, key in enumerate(dict.fromkeys(keys))}
    rewards = [None if value is None else float(value) for value in rows["reward"]] if "reward" in has else None
    advantages = rows["advantage"] if "advantage" in has else group_advantages(rewards, keys)
    completions = []
    for index, row in enumerate(rows):
        if isinstance(row["prompt"], str):
            prompt_ids = tokenizer(row["prompt"])["input_ids"]
        else:
            prompt_ids = tokenizer.apply_chat_template(
                row["prompt"], add_generation_prompt=True, tokenize=True, return_dict=True
            )["input_ids"]
        if "completion_ids" in has:
            completion_ids = row["completion_ids"]
        else:
            text = row["completion"] if isinstance(row["completion"], str) else row["completion"][-1]["content"]
            completion_ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        if completion_ids and prompt_ids:
            problem_id = keys[index] if "problem_id" in has else f"prompt-{numbers[keys[index]]}"
            reward = rewards[index] if rewards else None
            completions.append(
                Completion(problem_id, list(prompt_ids), list(completion_ids), reward, float(advantages[index] or 0.0))
            )
    return completions


def group_advantages(rewards: list[float | None], groups: list) -> list[float]:
    """
    GRPO's advantages: rewards minus the mean of their group, divided by its standard deviation plus 1e-4.

    Args:
        rewards (`list[float | None]`):
            Rewards. A completion without one counts in no mean and gets zero.
        groups (`list`):
            The prompt of each.

    Returns:
        `list[float]`: zero in groups of equal rewards, and of one.

    Example:

    ```python
    >>> advantages = group_advantages([1.0, 0.0, 1.1, 1.1, 5.0], ["a", "a", "b", "b", "c"])
    >>> [round(advantage, 3) for advantage in advantages]  # 0.5 / (0.7071 + 0.0001)
    [0.707, -0.707, 0.0, 0.0, 0.0]
    ```
    """
    members = {}
    for index, (reward, group) in enumerate(zip(rewards, groups, strict=True)):
        if reward is not None:
            members.setdefault(group, []).append(index)
    advantages = [0.0] * len(rewards)
    for indices in members.values():
        values = torch.tensor([rewards[index] for index in indices], dtype=torch.float64)
        if bool(have_spread(values.unsqueeze(1), len(indices)).any()):
            for index, value in zip(indices, (values - values.mean()) / (values.std() + 1e-4), strict=True):
                advantages[index] = value.item()
    return advantages
