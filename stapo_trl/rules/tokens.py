"""
What a token rule sees, and what it answers.

A rule is a function of the flat valid tokens of one optimizer step. Micro-batches, padding, tool results and processes
are the trainer's business. Axes: B responses, T completion positions, N tokens of this process.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import torch


# Advantages come out of a float32 mean and a division by the group's spread: what rounding leaves of equal rewards is
# not a positive advantage
MIN_ADVANTAGE = 1e-6


class Tokens(NamedTuple):
    """
    The valid tokens with finite scores of this process in one optimizer step: vectors of shape (N,), where N may be 0.

    Detached, the floats in float32 or wider, micro-batch after micro-batch and row after row.
    """

    logps: torch.Tensor  # nats, of the current policy after the sampling temperature
    entropies: torch.Tensor  # nats
    advantages: torch.Tensor  # zero in groups of equal rewards
    old_logps: torch.Tensor  # nats, of the policy that sampled
    keys: torch.Tensor  # reproducible random numbers in [0, 1), see `token_keys`
    responses: torch.Tensor  # int64: the tokens of one response have the same number, on this process

    @property
    def ratios(self) -> torch.Tensor:
        """(N,) pi_theta / pi_old, its logarithm clamped to 20 as in the official codes: some rules divide by it."""
        return (self.logps - self.old_logps).clamp(-20, 20).exp()


@dataclass(frozen=True)
class Edit:
    """
    What a rule changes. The default changes nothing.

    Args:
        keep (`torch.Tensor` of shape (N,), *optional*):
            Boolean. `False` takes a token out of the sum of the loss and out of its normaliser.
        advantages (`torch.Tensor` of shape (N,), *optional*):
            Replace those of the tokens. A zero takes a token out of the sum only.
        candidates (`torch.Tensor` of shape (N,), *optional*):
            Boolean: the improbable tokens of correct responses, for the metrics and the token log. Those of STAPO if a
            rule does not say.
        quadrants (`tuple[float, float]`, *optional*):
            Where probability and entropy (nats) part the quadrants of the statistics. As under STAPO by default.
        metrics (`dict[str, float]`, *optional*):
            Logged as they are. The same on all processes.
    """

    keep: torch.Tensor | None = None
    advantages: torch.Tensor | None = None
    candidates: torch.Tensor | None = None
    quadrants: tuple[float, float] | None = None
    metrics: dict[str, float] = field(default_factory=dict)


# (n,) of this process -> (m,) of all processes in their order, and where this process's own lie
Gather = Callable[[torch.Tensor], tuple[torch.Tensor, slice]]


class Rule(Protocol):
    """
    A token rule. A rule with memory also has `state_dict` and `load_state_dict`, which checkpoints then hold.

    Attributes:
        positive_only (`bool`): whether the rule looks at tokens with a positive advantage only. The trainer then scores
            and hands over no others.
        loss (`str`, *optional*): the loss without which the rule is another method, `"unclipped"` or `"cispo"`. The
            trainer refuses settings of another one.
        flips_signs (`bool`, *optional*): whether new advantages may have another sign.
    """

    positive_only: bool

    def __call__(self, tokens: Tokens, gather: Gather) -> Edit:
        """Called once for each optimizer step, on every process, which must all call `gather` equally often."""
        ...


def gather_one(values: torch.Tensor) -> tuple[torch.Tensor, slice]:
    """The `gather` of a single process."""
    return values, slice(0, len(values))


class StepEdit(NamedTuple):
    """An [`Edit`] laid out over the micro-batches of this process, one entry of each list for each."""

    keep_masks: list[torch.Tensor]  # (B, T) boolean, True = trained
    advantages: list[torch.Tensor | None]  # (B, T), or None where they stay as they are
    candidates: list[torch.Tensor]  # (B, T) boolean
    quadrants: tuple[float, float] | None


def loss_mask(inputs: dict[str, Any]) -> torch.Tensor:
    """(B, T), 1 for the tokens that TRL's loss counts."""
    return inputs["completion_mask"] * inputs.get("tool_mask", 1)


def spread_advantages(inputs: dict[str, Any]) -> torch.Tensor:
    """(B,) or (B, T), zero in groups whose rewards are all equal, where TRL's are rounding errors."""
    advantages = inputs["advantages"]
    if "has_spread" not in inputs:
        return advantages
    return advantages * inputs["has_spread"].view(-1, *[1] * (advantages.dim() - 1))
