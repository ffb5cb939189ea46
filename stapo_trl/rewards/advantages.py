"""Rewards within the group of completions of one prompt: whether they differ, and GRPO's advantages."""

import torch


def have_spread(rewards: torch.Tensor, group_size: int) -> torch.Tensor:
    """Which completions belong to a group whose rewards are not all equal.

    GRPO subtracts the mean of the group in float32: eight equal rewards of 1.1 leave about 1e-7, which divided by their
    standard deviation plus 1e-4 becomes an "advantage" of 2e-3, as large as real ones are.

    Args:
        rewards (`torch.Tensor` of shape (B, K)): Rewards with groups in consecutive rows, and a column for each reward
            that is normalised on its own. NaN, for a completion without a reward, does not count.
        group_size (`int`): Completions of one prompt, a divisor of B.

    Returns:
        `torch.Tensor` of shape (B,): boolean.

    Example:

    ```python
    >>> have_spread(torch.tensor([[1.1], [1.1], [1.0], [-1.0]]), group_size=2)
    tensor([False, False,  True,  True])
    ```
    """
    groups = rewards.view(-1, group_size, rewards.size(1))
    highest = groups.nan_to_num(nan=-torch.inf).amax(1)
    lowest = groups.nan_to_num(nan=torch.inf).amin(1)
    # Sums of weighted rewards that are equal on paper may differ in their last digits
    spread = highest - lowest > 1e-6 * highest.abs().clamp(min=1.0)
    return spread.any(1).repeat_interleave(group_size)


def group_advantages(rewards: list[float | None], groups: list) -> list[float]:
    """GRPO's advantages: rewards minus the mean of their group, divided by its standard deviation plus 1e-4.

    A completion without a reward enters no mean and gets zero, and so do groups of equal rewards and groups of one.

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
