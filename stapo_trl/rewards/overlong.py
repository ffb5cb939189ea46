"""DAPO's soft punishment of overlong completions: TRL's function with its arguments checked."""

import logging
from collections.abc import Callable, Iterable


logger = logging.getLogger(__name__)
VOID = (
    "mask_truncated_completions=True removes truncated completions from the loss, so the overlong punishment of just "
    "these has no effect: switch one of the two off."
)


def get_soft_overlong_punishment(
    max_completion_len: int, soft_punish_cache: int, mask_truncated_completions: bool = False
) -> Callable[..., list[float]]:
    r"""The soft overlong punishment of DAPO (Eq. 13 of https://huggingface.co/papers/2503.14476), lengths in tokens.

    0 up to `L_max - L_cache` tokens, falling linearly to -1 at `L_max`, -1 beyond.

    Args:
        max_completion_len (`int`): `L_max`, tokens.
        soft_punish_cache (`int`): `L_cache`, tokens, from 0 (a step at `L_max`) to `L_max`.
        mask_truncated_completions (`bool`, *optional*, defaults to `False`): The trainer's setting, which would make
            the punishment void: a warning says so.

    Returns:
        `Callable`: TRL's reward function, which reads `completion_ids`.

    Raises:
        `ValueError`: If the cache is negative or longer than the maximum, or the maximum is not positive.

    Example:
    ```python
    >>> punish = get_soft_overlong_punishment(max_completion_len=100, soft_punish_cache=20)
    >>> punish(completion_ids=[[1] * length for length in (80, 81, 90, 100, 101)])
    [0.0, -0.05, -0.5, -1.0, -1.0]
    ```
    """
    from trl.rewards import get_soft_overlong_punishment as trl_punishment

    if max_completion_len <= 0:
        raise ValueError(f"`max_completion_len` is a number of tokens above 0, got {max_completion_len}.")
    if not 0 <= soft_punish_cache <= max_completion_len:
        raise ValueError(
            f"`soft_punish_cache` must lie between 0 and `max_completion_len` ({max_completion_len}), got "
            f"{soft_punish_cache}: it is the part of the maximum over which the punishment grows."
        )
    punishment = trl_punishment(max_completion_len=max_completion_len, soft_punish_cache=soft_punish_cache)
    warn_if_void([punishment], mask_truncated_completions)
    return punishment


def warn_if_void(reward_funcs: Iterable, mask_truncated_completions: bool) -> bool:
    """Warn if an overlong punishment is among the rewards although truncated completions are masked.

    Args:
        reward_funcs (`Iterable`): The trainer's reward functions.
        mask_truncated_completions (`bool`): The trainer's setting.

    Returns:
        `bool`: Whether it warned.
    """
    names = [getattr(function, "__name__", "") for function in reward_funcs]
    void = mask_truncated_completions and "soft_overlong_punishment_reward" in names
    if void:
        logger.warning(VOID)
    return void
