r"""
Silencing Spurious Tokens (S2T): which tokens of a mini-batch leave the loss.

The rule of STAPO ([arXiv 2602.15620](https://huggingface.co/papers/2602.15620), fifth version):

$$
I_{i,t} = 0 \quad\text{if}\quad A_i > 0 \;\wedge\; \pi_\theta(y_{i,t}) < \tau_p \;\wedge\; H_{i,t} < \tau_h^{(q)},
\qquad I_{i,t} = 1 \text{ otherwise.}
$$

Tokens that satisfy the first two conditions are *candidates*. \\( \tau_h^{(q)} \\) is the q-quantile of the entropies of
the candidates of one mini-batch (one optimizer step); the first versions of the paper took it over all response tokens.

Everything here is a pure function of tensors. Axes: B responses, T completion positions, N tokens of a flat selection.
No function keeps a gradient, loops over rows, or costs more than linear time in the number of tokens.
"""

import math

import torch


# Advantages come out of a float32 mean and a division by the group's spread. What is left of equal rewards after
# rounding is not a positive advantage.
MIN_ADVANTAGE = 1e-6
PAPER_QUANTILE = 0.75


def find_candidates(
    per_token_logps: torch.Tensor,
    entropies: torch.Tensor,
    advantages: torch.Tensor,
    mask: torch.Tensor,
    prob_threshold: float,
) -> torch.Tensor:
    r"""
    Which tokens are improbable tokens of correct responses: \\( A_i > 0 \wedge \pi_\theta(y_{i,t}) < \tau_p \\).

    Args:
        per_token_logps (`torch.Tensor` of shape (B, T)):
            Log-probability of each sampled token under the current policy, in nats, after the sampling temperature.
        entropies (`torch.Tensor` of shape (B, T)):
            Shannon entropy of the current policy at each position, in nats.
        advantages (`torch.Tensor` of shape (B,) or (B, T)):
            Advantages. Values up to `MIN_ADVANTAGE` are rounding errors of zero and do not count as positive.
        mask (`torch.Tensor` of shape (B, T)):
            1 for the tokens of the loss, 0 for padding, tool results and masked truncated completions.
        prob_threshold (`float`):
            \\( \tau_p \\), an absolute probability in [0, 1]. A token at the threshold is not a candidate.

    Returns:
        `torch.Tensor` of shape (B, T): boolean, `True` for candidates. Positions with a non-finite log-probability or
        entropy are never candidates.

    Example:

    ```python
    >>> # the second token has probability 0.001, the third is as improbable but belongs to the prompt's padding
    >>> find_candidates(
    ...     torch.tensor([[0.5, 0.001, 0.001]]).log(), torch.ones(1, 3), torch.tensor([1.0]), torch.tensor([[1, 1, 0]]), 0.002
    ... )
    tensor([[False,  True, False]])
    ```
    """
    if advantages.dim() == 1:
        advantages = advantages.unsqueeze(1)
    log_threshold = math.log(prob_threshold) if prob_threshold > 0 else -math.inf
    improbable = at_least_float32(per_token_logps.detach()) < log_threshold
    finite = per_token_logps.isfinite() & entropies.isfinite()
    return improbable & (advantages > MIN_ADVANTAGE) & mask.bool() & finite


def quantile(values: torch.Tensor, q: float) -> torch.Tensor:
    """
    The q-quantile of a vector, interpolated linearly between order statistics, as `torch.quantile` defines it.

    `torch.quantile` refuses more than 2^24 elements and half precision, and sorts; this selects, in linear time.

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


def entropy_threshold(entropies: torch.Tensor, entropy_quantile: float) -> torch.Tensor:
    r"""
    The entropy below which a candidate is silenced, \\( \tau_h^{(q)} \\).

    Args:
        entropies (`torch.Tensor` of shape (N,)):
            Entropies of the population of one mini-batch, over all micro-batches and processes: its candidates
            (current paper) or all its response tokens (first versions).
        entropy_quantile (`float`):
            q in [0, 1]. At 1 every candidate is silenced, also the one with the highest entropy (the paper's
            FullMask), at 0 none.

    Returns:
        `torch.Tensor`: scalar, in nats. Infinite at q = 1, minus infinite for q = 0 or without any token.
    """
    if entropy_quantile >= 1.0:
        return entropies.new_tensor(math.inf)
    if entropy_quantile <= 0.0 or entropies.numel() == 0:
        return entropies.new_tensor(-math.inf)
    return quantile(entropies, entropy_quantile)


def select_silenced(
    candidate_entropies: torch.Tensor,
    threshold: torch.Tensor,
    selection: str = "low_entropy",
    random_keys: torch.Tensor | None = None,
) -> torch.Tensor:
    r"""
    Which candidates are silenced.

    `"low_entropy"` is STAPO: the m candidates with \\( H_{i,t} < \tau_h^{(q)} \\). The other two are the ablations of the
    paper and silence the same number m: the candidates with the highest entropy, or a random choice.

    Args:
        candidate_entropies (`torch.Tensor` of shape (N,)):
            Entropies of all candidates of the mini-batch, in nats.
        threshold (`torch.Tensor`):
            Scalar, from `entropy_threshold`. A candidate at the threshold is kept.
        selection (`str`, defaults to `"low_entropy"`):
            `"low_entropy"`, `"high_entropy"` or `"random"`.
        random_keys (`torch.Tensor` of shape (N,), *optional*):
            For `"random"`: independent keys, from `token_keys`; the m smallest are silenced.

    Returns:
        `torch.Tensor` of shape (N,): boolean, `True` for silenced.

    Example:

    ```python
    >>> entropies = torch.tensor([0.1, 0.2, 3.0, 0.3])
    >>> select_silenced(entropies, torch.tensor(0.25))
    tensor([ True,  True, False, False])
    >>> select_silenced(entropies, torch.tensor(0.25), selection="high_entropy")
    tensor([False, False,  True,  True])
    ```
    """
    below = candidate_entropies < threshold
    if selection == "low_entropy":
        return below
    if selection == "high_entropy":
        return _smallest(-candidate_entropies, int(below.sum()))
    if selection == "random":
        return _smallest(random_keys, int(below.sum()))
    raise ValueError(f"`selection` must be 'low_entropy', 'high_entropy' or 'random', got {selection!r}.")


def at_least_float32(x: torch.Tensor) -> torch.Tensor:
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def _smallest(scores: torch.Tensor, count: int) -> torch.Tensor:
    """Boolean mask of exactly `count` smallest scores of shape (N,); of equal ones the first are taken."""
    if count == 0:
        return torch.zeros_like(scores, dtype=torch.bool)
    cut = scores.kthvalue(count).values
    below, tied = scores < cut, scores == cut
    return below | (tied & (tied.cumsum(0) <= count - below.sum()))


def token_keys(completion_ids: torch.Tensor, seed: int) -> torch.Tensor:
    """
    Reproducible random numbers, one for each token, that do not depend on how a batch is cut or where it runs.

    A token's number is a hash (the finalizer of SplitMix64) of the seed and of the completion up to the token, so the
    random ablation silences the same tokens on one process and on many, and leaves the global generators alone.

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


def compute_keep_mask(
    per_token_logps: torch.Tensor,
    entropies: torch.Tensor,
    advantages: torch.Tensor,
    mask: torch.Tensor,
    prob_threshold: float = 0.002,
    entropy_quantile: float = PAPER_QUANTILE,
    entropy_population: str = "candidates",
    selection: str = "low_entropy",
    random_keys: torch.Tensor | None = None,
) -> torch.Tensor:
    r"""
    The keep mask \\( I_{i,t} \\) of a mini-batch that lies in one tensor on one process.

    [`STAPOTrainer`] composes the same functions over micro-batches and processes.

    Args:
        per_token_logps, entropies, advantages, mask, prob_threshold:
            See `find_candidates`.
        entropy_quantile (`float`, defaults to `0.75`):
            q, see `entropy_threshold`.
        entropy_population (`str`, defaults to `"candidates"`):
            `"candidates"`: the quantile is taken over the candidates (fifth version of the paper). `"all"`: over all
            tokens of `mask` (first versions).
        selection, random_keys:
            See `select_silenced`.

    Returns:
        `torch.Tensor` of shape (B, T): boolean, `True` = trained, `False` = silenced. `True` outside of `mask`.

    Example:

    ```python
    >>> probs = torch.tensor([[0.9, 0.001, 0.001, 0.001], [0.9, 0.001, 0.001, 0.001]])
    >>> entropies = torch.tensor([[0.1, 0.2, 0.4, 2.0], [0.1, 0.2, 0.4, 2.0]])
    >>> # Only the first response is correct. Its candidates have entropies 0.2, 0.4 and 2.0, whose 75 % quantile is
    >>> # 0.4 + 0.5 * (2.0 - 0.4) = 1.2: two of them lie below and are silenced.
    >>> compute_keep_mask(probs.log(), entropies, torch.tensor([1.0, -1.0]), torch.ones(2, 4)).int()
    tensor([[1, 0, 0, 1],
            [1, 1, 1, 1]], dtype=torch.int32)
    ```
    """
    candidates = find_candidates(per_token_logps, entropies, advantages, mask, prob_threshold)
    entropies = entropies.detach()
    if entropy_population == "candidates":
        population = entropies[candidates]
    elif entropy_population == "all":
        population = entropies[mask.bool() & entropies.isfinite()]
    else:
        raise ValueError(f"`entropy_population` must be 'candidates' or 'all', got {entropy_population!r}.")
    threshold = entropy_threshold(population, entropy_quantile)
    keep = torch.ones_like(candidates)
    keys = random_keys[candidates] if random_keys is not None else None
    keep[candidates] = ~select_silenced(entropies[candidates], threshold, selection, keys)
    return keep
