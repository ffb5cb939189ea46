"""Saved completions: prompts, what was answered to them, and the advantages that GRPO would give."""

import contextlib
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import PreTrainedTokenizerBase

from ...data.reading.columns import open_row
from ...data.reading.source import open_rows
from ...evaluation.sampling.policy import read_prompt
from ...rewards.advantages import group_advantages
from ...rewards.completion import completion_text


NAMES = {
    "prompt": ("prompt", "question", "problem", "query", "input"),
    "completion": ("completion", "response", "output", "generation", "generated_text"),
    "reward": ("reward", "score"),
}
CHAT = re.compile(r"""\[\s*\{\s*"(?:role|content)"\s*:""")  # in a cell of a CSV
LARGEST = torch.finfo(torch.float32).max


@dataclass
class Completion:
    """A completion with its tokens, without padding; completions of one prompt have the same `problem_id`."""

    problem_id: str
    prompt_ids: list[int]
    completion_ids: list[int]
    reward: float | None
    advantage: float


def read_rows(path: str | Path, prompt=None, completion=None, reward=None) -> list[dict]:
    """
    The rows of a file of completions, with its columns under the names `prompt`, `completion` and `reward`.

    The file is what [`~stapo_trl.data.reading.source.open_rows`] reads. The columns are those that are named, by default the
    first of `NAMES` that it has, whatever their case.

    Raises:
        `FileNotFoundError`: if there is no such file.
        `ValueError`: for another kind of file, one that is damaged, one without rows, or if a column is missing.
    """
    path = Path(path)
    rows = [dict(open_row(row)) for row in open_rows("", path)]
    if not rows:
        raise ValueError(f"{path} has no rows.")
    found = list(rows[0])
    optional = {
        "prompt": "prompt_ids" in found,
        "completion": "completion_ids" in found,
        "reward": "advantage" in found,
    }
    for name, given in (("prompt", prompt), ("completion", completion), ("reward", reward)):
        options = NAMES[name] if given is None else (given,)
        column = next((seen for option in options for seen in found if option in (seen, seen.lower())), None)
        if column is None and (given is not None or not optional[name]):
            raise ValueError(
                f"{path.name} has no column {' or '.join(map(repr, options))}, only {found}: name the one with the "
                f"{name}s by --{name}_column."
            )
        if column not in (None, name):
            rows = [{name if seen == column else seen: row[seen] for seen in row if seen != name} for row in rows]
            found = list(rows[0])
    if path.name.lower().removesuffix(".gz").endswith((".csv", ".tsv")):
        rows = [{name: _parse_cell(name, value) for name, value in row.items()} for row in rows]
    return rows


def _parse_cell(name: str, text: str | None) -> object:
    """What a cell of a CSV stands for: nothing, a chat or token ids in JSON, or the text that it is."""
    if text and (name.endswith("_ids") or CHAT.match(text)):
        with contextlib.suppress(ValueError):
            return json.loads(text)
    return text or None


def tokenize_rows(
    rows: Sequence[Mapping], tokenizer: PreTrainedTokenizerBase, chat_template_kwargs: Mapping | None = None
) -> list[Completion]:
    """
    Tokenise completions as GRPOTrainer has them: the prompt alone, by the chat template if it is a conversation, and the
    completion alone. Rows without a token are left out.

    Saved text tokenised again can differ from the tokens that were sampled, and lacks the end-of-sequence token. The
    columns `prompt_ids` and `completion_ids` avoid both.

    Args:
        rows (`Sequence[Mapping]`):
            Rows with `prompt` and `completion` (text or messages), or `prompt_ids` and `completion_ids`; `reward` or
            `advantage`; and `problem_id` if prompts do not tell problems apart. Of a completion with several messages
            the last one of the assistant is scored, behind those before it.
        chat_template_kwargs (`Mapping`, *optional*):
            Variables of the chat template, as in training.

    Raises:
        `ValueError`: for a row that cannot be tokenised or whose numbers are none, by its number from 0.
    """
    tokens, keys, rewards, advantages = [], [], [], []
    for number, row in enumerate(rows):
        try:
            tokens.append(_tokenize(row, tokenizer, chat_template_kwargs))
            rewards.append(_read_number(row, "reward"))
            advantages.append(_read_number(row, "advantage"))
        except (ValueError, TypeError) as error:  # transformers raises the last one for some messages
            raise ValueError(f"Row {number} cannot be scored: {error}") from error
        name = row.get("problem_id")
        keys.append(json.dumps(row.get("prompt") or tokens[-1][0]) if name is None else str(name))
    if "advantage" not in (rows[0] if rows else ()):
        advantages = group_advantages(rewards, keys)
    numbers = {key: f"prompt-{number}" for number, key in enumerate(dict.fromkeys(keys))}
    names = [numbers[key] if row.get("problem_id") is None else key for key, row in zip(keys, rows, strict=True)]
    return [
        Completion(name, *ids, reward, advantage or 0.0)
        for name, ids, reward, advantage in zip(names, tokens, rewards, advantages, strict=True)
        if ids[1]
    ]


def _tokenize(
    row: Mapping, tokenizer: PreTrainedTokenizerBase, chat_template_kwargs: Mapping | None
) -> tuple[list[int], list[int]]:
    """Tokens of the prompt and of the completion of a row."""
    prompt, completion = row.get("prompt"), row.get("completion")
    prompt_ids, completion_ids = _read_ids(row, "prompt_ids"), _read_ids(row, "completion_ids")
    if completion_ids is None and isinstance(completion, list):
        _check_messages("completion", completion)
        spoken = [place for place, message in enumerate(completion) if message.get("role") == "assistant"]
        before = completion[: spoken[-1]] if spoken else []
        if before and (prompt_ids is not None or not isinstance(prompt, list)):
            raise ValueError("the completion has several messages, but the prompt is no chat that they could follow.")
        prompt, completion = prompt + before if before else prompt, completion_text(completion)

    if prompt_ids is None and isinstance(prompt, list):
        _check_messages("prompt", prompt)
        if tokenizer.chat_template is None:
            raise ValueError("the prompt is a chat, but the tokenizer has no chat template: give prompts as text.")
        prompt_ids = read_prompt(tokenizer, prompt, chat_template_kwargs)
    elif prompt_ids is None:
        prompt_ids = tokenizer(_check_text("prompt", prompt))["input_ids"]
    if not prompt_ids:
        raise ValueError("the prompt is empty.")

    if completion_ids is None:
        text = _check_text("completion", "" if completion is None else completion)
        completion_ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    return list(prompt_ids), list(completion_ids)


def _check_messages(name: str, messages: Iterable) -> None:
    if not all(isinstance(message, Mapping) and isinstance(message.get("role"), str) for message in messages):
        raise ValueError(f"the {name} is a list, but not of messages with a role and a content: {str(messages)[:80]}.")


def _check_text(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"the {name} is neither text nor a list of messages: {str(value)[:80]}.")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"the {name} holds half a character, {value[error.start]!r}.") from error
    return value


def _read_ids(row: Mapping, name: str) -> list[int] | None:
    ids = row.get(name)
    if ids is not None and not (isinstance(ids, list) and all(type(token) is int and token >= 0 for token in ids)):
        raise ValueError(f"`{name}` is no list of token ids: {str(ids)[:80]}.")
    return ids


def _read_number(row: Mapping, name: str) -> float | None:
    """A number of a row; `None` where it is missing, as which pandas writes NaN."""
    value = row.get(name)
    try:
        number = math.nan if value is None or value == "" else float(value)
    except (ValueError, TypeError):
        number = math.inf
    if abs(number) > LARGEST:
        raise ValueError(f"the {name} is no number: {str(value)[:80]}.")
    return None if math.isnan(number) else number
