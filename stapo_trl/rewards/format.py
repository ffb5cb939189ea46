"""Rewards for the form of a response, whatever it answers."""

import re

from .completion import read_responses
from .verifier.answer import final_answer
from .verifier.text.thinking import cut_turn


# TRL's think_format_reward pays for "<think></think>a"; here neither part may be empty
THOUGHT = re.compile(r"\s*<think>((?:(?!</?think>).)*)</think>((?:(?!</?think>).)*)", re.DOTALL)


def boxed_format_reward(completions: list, **kwargs) -> list[float]:
    r"""Whether the response ends in a box: 1.0 for a closed, non-empty last box after any thinking part, else 0.0.

    Args:
        completions (`list[str]` or `list[list[dict]]`): Plain or chat completions.
        **kwargs: TRL's other arguments, of which `prompts` and `log_extra` tell whether the prompt opened a thought.

    Returns:
        `list[float]`: One value per completion.

    Example:
    ```python
    >>> boxed_format_reward([r"So \boxed{5}.", r"<think>\boxed{5}</think> Five.", r"So \boxed{}."])
    [1.0, 0.0, 0.0]
    ```
    """
    return [
        float(final_answer(response, require_box=True) is not None)
        for response in read_responses(completions, **kwargs)
    ]


def think_format_reward(completions: list, **kwargs) -> list[float]:
    """Whether the response is one `<think>` block with thoughts in it, followed by an answer: 1.0, else 0.0.

    Stricter than TRL's function of this name, which also pays for an empty block or a missing answer. The opening tag is
    the prompt's where it ends with one, as chat templates of thinking models do.

    Args:
        completions (`list[str]` or `list[list[dict]]`): Plain or chat completions.
        **kwargs: TRL's other arguments, of which `prompts` and `log_extra` tell whether the prompt opened a thought.

    Returns:
        `list[float]`: One value per completion.

    Example:
    ```python
    >>> think_format_reward(["<think>2+3</think>5", "<think></think>5", "<think>2+3</think>", "5"])
    [1.0, 0.0, 0.0, 0.0]
    ```
    """
    matches = [THOUGHT.fullmatch(cut_turn(response)) for response in read_responses(completions, **kwargs)]
    return [float(bool(match and match[1].strip() and match[2].strip())) for match in matches]
