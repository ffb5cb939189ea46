"""Writes the prompt for a problem; its instruction asks for the form of answer that the reward reads."""

import json
from collections.abc import Mapping
from typing import Literal


PromptFormat = Literal["chat", "plain"]
# The paper's, for `math_accuracy_reward` and `boxed_format_reward`
BOXED_INSTRUCTION = r"Please reason step by step, and put your final answer within \boxed{}."
# For `think_format_reward` too
THINK_INSTRUCTION = (
    r"Please reason step by step between <think> and </think>, then put your final answer within \boxed{}."
)
# What published copies wrap around a problem (the first pair is DAPO's)
PREFIXES = (
    "Solve the following math problem step by step. The last line of your response should be of the form "
    "Answer: $Answer (without quotes) where $Answer is the answer to the problem.",
)
SUFFIXES = (
    'Remember to put your answer on its own line after "Answer:".',
    BOXED_INSTRUCTION,
    THINK_INSTRUCTION,
    r"Let's think step by step and output the final answer within \boxed{}.",
    'Let\'s think step by step and output the final answer after "####".',
)


def format_prompt(
    problem: str,
    prompt_format: PromptFormat = "chat",
    instruction: str | None = BOXED_INSTRUCTION,
    system: str | None = None,
) -> list[dict[str, str]] | str:
    r"""
    The prompt for a problem.

    Args:
        problem (`str`):
            Text of the problem.
        prompt_format (`str`, defaults to `"chat"`):
            `"chat"` for models with a chat template, `"plain"` for base models without one.
        instruction (`str`, *optional*, defaults to `BOXED_INSTRUCTION`):
            Appended on a line of its own. [`think_format_reward`] needs `THINK_INSTRUCTION` or one like it.
        system (`str`, *optional*):
            System message, before everything else.

    Returns:
        `list[dict]` of messages, or `str`.

    Raises:
        `ValueError`: for an unknown format.

    Example:

    ```python
    >>> format_prompt("What is $1+1$?")
    [{'role': 'user', 'content': 'What is $1+1$?\nPlease reason step by step, and put your final answer within \\boxed{}.'}]
    >>> format_prompt("What is $1+1$?", "plain", instruction=None)
    'What is $1+1$?'
    ```
    """
    check_format(prompt_format)
    text = f"{problem}\n{instruction}" if instruction else problem
    if prompt_format == "plain":
        return f"{system}\n\n{text}" if system else text
    messages = [{"role": "system", "content": system}] if system else []
    return [*messages, {"role": "user", "content": text}]


def check_format(prompt_format: str) -> None:
    """Raise a `ValueError` for an unknown prompt format, before any data are read."""
    if prompt_format not in PromptFormat.__args__:
        raise ValueError(f"`prompt_format` must be one of {list(PromptFormat.__args__)}, got {prompt_format!r}.")


def check_prompt(prompt: object) -> None:
    """Raise a `ValueError` for a prompt that is neither text nor messages, or that UTF-8 cannot encode."""
    is_chat = isinstance(prompt, list) and prompt and all(isinstance(message, Mapping) for message in prompt)
    if is_chat:
        is_chat = all(isinstance(message.get("role"), str) and message.get("content") for message in prompt)
    if not is_chat and not (isinstance(prompt, str) and prompt.strip()):
        raise ValueError(f"the prompt is neither text nor messages with a role and a content: {str(prompt)[:80]}")
    json.dumps(prompt, ensure_ascii=False).encode()


def bare_problem(text: str) -> str:
    """A problem without the known instructions around it."""
    text = text.strip()
    for prefix in PREFIXES:
        text = text.removeprefix(prefix).lstrip()
    for suffix in SUFFIXES:
        text = text.removesuffix(suffix).rstrip()
    return text
