"""Choosing some of N tokens: quantiles, the k largest or smallest, means, and reproducible random keys. All in linear time."""

import math

import torch

from .tokens import Gather, Tokens


def quantile(values: torch.Tensor, q: float) -> torch.Tensor:
    """
    The q-quantile of a vector, interpolated linearly between order statistics, as `torch.quantile` defines it.

    `torch.quantile` refuses more than 2^24 elements and half precision, and sorts.

    Args:
        values (`torch.Tensor` of shape (N,)):
            Finite values, N > 0.
        q (`float`):
            Quantile in [0, 1].

    Returns:
        `torch.Tensor`: scalar of the dtype of `values`, or float32 for half precision.

    Raises:
        `ValueError`: if `values` is empty.

    Example:

    ```python
    >>> quantile(torch.tensor([4.0, 1.0, 2.0, 3.0]), 0.75)  # position 0.75 * 3 = 2.25, a quarter from 3 to 4
    tensor(3.2500)
    ```
    """
    count = values.numel()
    if count == 0:
        raise ValueError("The quantile of no values is undefined: check that there is a token before asking for it.")
    values = at_least_float32(values)
    position = q * (count - 1)
    rank = min(math.floor(position), count - 1)
    lower = values.kthvalue(rank + 1).values
    upper = values.kthvalue(min(rank + 2, count)).values
    return torch.lerp(lower, upper, position - rank)


def smallest(scores: torch.Tensor, count: int) -> torch.Tensor:
    """
    Boolean mask of exactly `count` smallest of N scores; of equal ones the first are taken.

    Example:

    ```python
    >>> smallest(torch.tensor([3.0, 1.0, 2.0, 1.0]), 2)
    tensor([False,  True, False,  True])
    ```
    """
    if count == 0:
        return torch.zeros_like(scores, dtype=torch.bool)
    cut = scores.kthvalue(count).values
    below, tied = scores < cut, scores == cut
    return below | (tied & (tied.cumsum(0) <= count - below.sum()))


def count_share(share: float, count: int) -> int:
    """How many are a share of `count` > 0 tokens: rounded up (but for the rounding of floats), and at least one."""
    return min(max(int(share * count + 0.999999), 1), count)  # STARE's own guard


def kth_largest(values: torch.Tensor, k: int) -> torch.Tensor:
    """
    The k-th largest of N values. Tokens at least as large are k, and more where several have this very value: which of
    them came first depends on how the step is cut.
    """
    return values.kthvalue(len(values) - k + 1).values


def averages(gather: Gather, *vectors: torch.Tensor) -> tuple[int, list[float]]:
    """
    Number of tokens on all processes, and the mean over them of each vector (N,); 0 of no tokens. One collective.

    The sums are taken in float64, so that a mean does not depend on how the step is cut.
    """
    dtype = torch.float32 if vectors[0].device.type == "mps" else torch.float64  # Apple's GPUs have no float64
    sums = torch.stack([vector.sum(dtype=dtype) for vector in (torch.ones_like(vectors[0]), *vectors)])
    count, *totals = gather(sums)[0].view(-1, len(sums)).sum(0).tolist()
    return int(count), [total / max(count, 1) for total in totals]


def covariances(tokens: Tokens, gather: Gather) -> tuple[int, torch.Tensor]:
    """Number of tokens on all processes, and (N,) the summands of the covariance of advantage and log-probability."""
    count, (advantage, logp) = averages(gather, tokens.advantages, tokens.logps)
    return count, (tokens.advantages - advantage) * (tokens.logps - logp)


def token_keys(completion_ids: torch.Tensor, seed: int) -> torch.Tensor:
    """
    Reproducible random numbers, one for each token, that do not depend on how a step is cut or where it runs.

    A token's number is a hash (the finalizer of SplitMix64) of the seed and of the completion up to the token. The
    global generators are left alone.

    Args:
        completion_ids (`torch.Tensor` of shape (B, T)):
            Token ids, right-padded.
        seed (`int`):
            Seed; vary it with the step.

    Returns:
        `torch.Tensor` of shape (B, T): float32 in [0, 1).
    """
    positions = torch.arange(1, completion_ids.size(1) + 1, device=completion_ids.device)
    # Integer arithmetic wraps around, as the hash wants it
    state = (_mix(completion_ids * 0x2545F4914F6CDD1D + positions)).cumsum(1) + seed * 0x5851F42D4C957F2D % 2**62
    return (_mix(state) & 0xFFFFFF).float() / 2**24


def _mix(x: torch.Tensor) -> torch.Tensor:
    """SplitMix64's finalizer on int64. Its shifts are logical: the sign bits that `>>` drags in are cleared."""
    x = (x ^ ((x >> 30) & (2**34 - 1))) * -0x40A7B892E31B1A47
    x = (x ^ ((x >> 27) & (2**37 - 1))) * -0x6B2FB644ECCEEE15
    return x ^ ((x >> 31) & (2**33 - 1))


def at_least_float32(x: torch.Tensor) -> torch.Tensor:
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
