r"""
What one token does to the policy: its gradient, its bounds, and the change of entropy it causes.

The theory of STAPO ([arXiv 2602.15620](https://huggingface.co/papers/2602.15620), fifth version). For a token \\( y \\)
with probability \\( \pi(y) \\), drawn at a position of entropy \\( H \\), and the weight \\( w \\) of its log-probability
in the gradient of the objective,

$$
\|\nabla_a\|^2 = w^2 \Big(1 - 2\pi(y) + \sum_v \pi(v)^2\Big), \qquad
w^2 (1 - 2\pi(y) + e^{-H}) \le \|\nabla_a\|^2 \le w^2 (2 - 2\pi(y) - C_V H^2)
$$

with respect to the logits \\( a \\) of that position, before silencing. Pure functions of tensors, without gradients. Axes:
B responses, T completion positions; functions of elements also take any other shape. Throughout, `per_token_logps` are
log-probabilities and `entropies` entropies of the current policy, in nats, and advantages have the shape (B,) or (B, T).

The metrics `s2t/<sign>/<quadrant>/...` come from [`describe_quadrants`]. The sign is that of the advantage; the quadrants are
those of the paper's table, parted by \\( \tau_p \\) and by the step's entropy threshold (at q = 0 and 1 by the paper's 75 %
quantile). A step without a candidate has none of them.
"""

import math

import torch

from ..rules.tokens import MIN_ADVANTAGE


# Of the paper's table: probability at least tau_p or below, entropy at least tau_h or below
QUADRANTS = ("high_prob_high_entropy", "high_prob_low_entropy", "low_prob_high_entropy", "low_prob_low_entropy")
SIGNS = ("positive", "negative", "zero")  # of the advantage
STATISTICS = ("count", "prob", "entropy", "surprisal", "gradient_norm", "entropy_change")


def gradient_weights(
    ratios: torch.Tensor, advantages: torch.Tensor, epsilon_low: float, epsilon_high: float
) -> torch.Tensor:
    r"""
    The factor \\( w \\) of each token's log-probability in the gradient of the clipped objective: \\( \rho A \\), and 0 where
    the clip is active, which is where \\( A > 0 \\) and \\( \rho > 1 + \epsilon_{high} \\), or \\( A < 0 \\) and
    \\( \rho < 1 - \epsilon_{low} \\).

    Args:
        ratios (`torch.Tensor` of shape (B, T)):
            \\( \rho = \pi_\theta / \pi_{old} \\) of each token.
        advantages (`torch.Tensor` of shape (B,) or (B, T)):
            Advantages.
        epsilon_low, epsilon_high (`float`):
            Clip range \\( [1 - \epsilon_{low}, 1 + \epsilon_{high}] \\).

    Returns:
        `torch.Tensor` of shape (B, T).

    Example:

    ```python
    >>> gradient_weights(torch.tensor([[1.0, 1.3, 0.5]]), torch.tensor([2.0]), 0.2, 0.28)
    tensor([[2., 0., 1.]])
    ```
    """
    if advantages.dim() < ratios.dim():
        advantages = advantages.unsqueeze(-1)
    clipped = ((advantages > 0) & (ratios > 1 + epsilon_high)) | ((advantages < 0) & (ratios < 1 - epsilon_low))
    return torch.where(clipped, 0.0, ratios * advantages)


def gradient_norm_sq(
    per_token_logps: torch.Tensor, log_sum_sq_probs: torch.Tensor, weights: torch.Tensor | float = 1.0
) -> torch.Tensor:
    r"""
    Squared norm of each token's gradient with respect to the logits of its position, exact.

    It is computed as \\( w^2 ((1 - \pi(y))^2 + \sum_{v \ne y} \pi(v)^2) \\), which is the same and does not cancel where
    the policy is sure.

    Args:
        per_token_logps (`torch.Tensor`):
            In nats.
        log_sum_sq_probs (`torch.Tensor`, same shape):
            \\( \ln \sum_v \pi(v)^2 \\) at the token's position, as TRL's fused head gives it.
        weights (`torch.Tensor` or `float`, *optional*, defaults to `1.0`):
            \\( w \\), see `gradient_weights`.

    Example:

    ```python
    >>> probs = torch.tensor([0.5, 0.25, 0.25])  # gradient of log pi(first): (1, 0, 0) - probs, squared 0.25 + 2/16
    >>> gradient_norm_sq(probs[0].log(), probs.square().sum().log())
    tensor(0.3750)
    ```
    """
    others = log_sum_sq_probs.exp() - (2 * per_token_logps).exp()
    return weights**2 * (torch.expm1(per_token_logps).square() + others.clamp(min=0.0))


def gradient_norm_sq_bounds(
    per_token_logps: torch.Tensor, entropies: torch.Tensor, vocab_size: int, weights: torch.Tensor | float = 1.0
) -> tuple[torch.Tensor, torch.Tensor]:
    r"""
    Lower and upper bound of the paper's theorem on `gradient_norm_sq`, from the probability and the entropy alone.

    Both are reached by a uniform distribution, the lower one by every distribution that is uniform on some tokens. The
    lower one may be negative.

    Raises:
        `ValueError`: if the vocabulary has fewer than 2 tokens.

    Example:

    ```python
    >>> # uniform over 4 tokens: 1 - 2/4 + 1/4 = 0.75, and C_V H^2 = 3/4
    >>> gradient_norm_sq_bounds(torch.tensor(0.25).log(), torch.tensor(4.0).log(), vocab_size=4)
    (tensor(0.7500), tensor(0.7500))
    ```
    """
    if vocab_size < 2:
        raise ValueError(f"`vocab_size` must be at least 2, got {vocab_size}: one token has no alternative.")
    factor = (vocab_size - 1) / (vocab_size * math.log(vocab_size) ** 2)
    probs = per_token_logps.exp()
    lower = weights**2 * (1 - 2 * probs + (-entropies).exp())
    upper = weights**2 * (2 - 2 * probs - factor * entropies.square())
    return lower, upper


def entropy_change(
    per_token_logps: torch.Tensor,
    entropies: torch.Tensor,
    advantages: torch.Tensor,
    learning_rate: float = 1.0,
    expected_advantages: torch.Tensor | float = 0.0,
) -> torch.Tensor:
    r"""
    First-order change of a position's entropy, in nats, by one natural-policy-gradient step: the part of one token (the
    paper's lemma).

    $$
    \Delta H(y) \approx -\eta\, \pi(y) \, [\ln \pi(y) - E_{y'} \ln \pi(y')] \, [A(y) - E_{y'} A(y')],
    \qquad E_{y'} \ln \pi(y') = -H
    $$

    Summed over the vocabulary it is the change of the entropy by the step \\( \Delta a(v) = \eta (A(v) - E A) \\) of the
    logits, up to second order in \\( \eta \\). An improbable token with a positive advantage pushes entropy up.

    Args:
        per_token_logps, entropies, advantages (`torch.Tensor`, of one shape):
            Of each token and its position.
        learning_rate (`float`, *optional*, defaults to `1.0`):
            \\( \eta \\).
        expected_advantages (`torch.Tensor` or `float`, *optional*, defaults to `0.0`):
            \\( E_{y'} A(y') \\) at the position. Group-normalised advantages have mean zero.

    Example:

    ```python
    >>> # -0.5 * (ln 0.5 + 1.04) * 1, with an entropy of 1.04 nats
    >>> entropy_change(torch.tensor(0.5).log(), torch.tensor(1.04), torch.tensor(1.0))
    tensor(-0.1734)
    ```
    """
    surplus = per_token_logps + entropies
    return -learning_rate * per_token_logps.exp() * surplus * (advantages - expected_advantages)


def find_quadrants(
    per_token_logps: torch.Tensor, entropies: torch.Tensor, prob_threshold: float, entropy_threshold: float
) -> torch.Tensor:
    r"""
    The quadrant of each token in the plane of probability and entropy, as an index into `QUADRANTS`.

    A token at a threshold, \\( \tau_p \\) or \\( \tau_h \\) (nats), counts as high.

    Example:

    ```python
    >>> find_quadrants(torch.tensor([0.5, 0.5, 0.001, 0.001]).log(), torch.tensor([2.0, 0.1, 2.0, 0.1]), 0.002, 1.0)
    tensor([0, 1, 2, 3])
    ```
    """
    log_threshold = math.log(prob_threshold) if prob_threshold > 0 else -math.inf
    return 2 * (per_token_logps < log_threshold).long() + (entropies < entropy_threshold).long()


def sum_quadrants(
    per_token_logps: torch.Tensor,
    entropies: torch.Tensor,
    gradient_norms: torch.Tensor,
    advantages: torch.Tensor,
    mask: torch.Tensor,
    prob_threshold: float,
    entropy_threshold: float,
) -> torch.Tensor:
    """
    Sums over the tokens of each quadrant and sign of the advantage; those of several batches may be added.

    Args:
        per_token_logps, entropies (`torch.Tensor` of shape (B, T)):
            Tokens for which one of them is not finite are left out.
        gradient_norms (`torch.Tensor` of shape (B, T)):
            Roots of `gradient_norm_sq`.
        advantages (`torch.Tensor` of shape (B,) or (B, T)):
            Values up to `MIN_ADVANTAGE` count as zero.
        mask (`torch.Tensor` of shape (B, T)):
            1 for valid tokens.
        prob_threshold, entropy_threshold (`float`):
            See `find_quadrants`.

    Returns:
        `torch.Tensor` of shape (3, 4, 6): sums over `SIGNS`, `QUADRANTS` and `STATISTICS`, in float64 where the device
        has it. The change of entropy is that of `entropy_change` with a learning rate of 1.
    """
    if advantages.dim() == 1:
        advantages = advantages.unsqueeze(1)
    advantages = advantages.expand_as(mask)
    seen = mask.bool() & per_token_logps.isfinite() & entropies.isfinite()
    dtype = torch.float32 if mask.device.type == "mps" else torch.float64
    logps, entropies, norms, advantages = (
        x.detach()[seen].to(dtype) for x in (per_token_logps, entropies, gradient_norms, advantages)
    )
    signs = torch.where(advantages > MIN_ADVANTAGE, 0, torch.where(advantages < -MIN_ADVANTAGE, 1, 2))
    index = 4 * signs + find_quadrants(logps, entropies, prob_threshold, entropy_threshold)
    change = entropy_change(logps, entropies, advantages)
    values = torch.stack([torch.ones_like(logps), logps.exp(), entropies, -logps, norms, change], dim=1)
    return values.new_zeros(12, 6).index_add_(0, index, values).view(3, 4, 6)


def describe_quadrants(sums: torch.Tensor) -> dict[str, float]:
    """
    Counts, shares and means of each quadrant, from the sums of `sum_quadrants`.

    Returns:
        `dict[str, float]`: for each sign but zero and each quadrant, `"{sign}/{quadrant}/..."` with

        - `count`, and `share`: tokens, and their share of all tokens,
        - `prob`, `entropy`, `surprisal`, `gradient_norm`: means over its tokens (nats; left out without a token),
        - `gradient_share`: share of the gradient norms of all tokens,
        - `entropy_change`: its part of the change of the mean entropy by a step with a learning rate of 1, in nats.
    """
    num_tokens, norm = sums[..., 0].sum().item(), sums[..., 4].sum().item()
    described = {}
    for sign, of_sign in zip(SIGNS[:2], sums.tolist(), strict=False):
        for quadrant, values in zip(QUADRANTS, of_sign, strict=True):
            name, total = f"{sign}/{quadrant}", dict(zip(STATISTICS, values, strict=True))
            described[f"{name}/count"] = total["count"]
            if num_tokens > 0:
                described[f"{name}/share"] = total["count"] / num_tokens
                described[f"{name}/entropy_change"] = total["entropy_change"] / num_tokens
            if norm > 0:
                described[f"{name}/gradient_share"] = total["gradient_norm"] / norm
            if total["count"] > 0:
                for mean in ("prob", "entropy", "surprisal", "gradient_norm"):
                    described[f"{name}/{mean}"] = total[mean] / total["count"]
    return described
