r"""
Clip-Cov ([arXiv 2505.22617](https://huggingface.co/papers/2505.22617)): a few tokens whose advantage and log-probability
vary together, and so lower the entropy, get no gradient.

$$
c_{i,t} = (A_i - \bar A)\,(\ln \pi_\theta(y_{i,t}) - \overline{\ln \pi_\theta}), \qquad
A'_{i,t} = 0 \text{ for } \max(1, \lfloor \text{share} \cdot N \rfloor) \text{ random tokens with } l < c_{i,t} < u
$$

Paper and official code, which leaves tokens that PPO clips already out of the band and divides the loss by all tokens.
Means and draw are of the optimizer step here, of each micro-batch in the code.
"""

from dataclasses import dataclass

import torch

from ..parameters import check_number
from ..selection import covariances, kth_largest
from ..tokens import Edit, Gather, Tokens


@dataclass(frozen=True)
class ClipCov:
    r"""
    The token rule of Clip-Cov.

    Args:
        share (`float`, *optional*, defaults to `0.0002`):
            Of all tokens, in (0, 1]: how many of the band are drawn, by the smallest keys.
        lower, upper (`float`, *optional*, defaults to `1.0` and `5.0`):
            Bounds of the band, `lower` below `upper`.
        epsilon, epsilon_high (`float`, *optional*, defaults to `0.2`):
            Clip range of the loss, at least 0. STAPOTrainer fills in its own.

    Raises:
        `ValueError`: for a value out of its range.

    Example:

    ```python
    >>> from stapo_trl.rules.tokens import gather_one
    >>> logps, advantages = torch.tensor([-0.1, -3.0, -0.1, -3.0]), torch.tensor([1.0, 1.0, -1.0, -1.0])
    >>> tokens = Tokens(logps, torch.ones(4), advantages, logps, torch.tensor([0.2, 0.5, 0.7, 0.1]), torch.zeros(4))
    >>> # The means are 0 and -1.55, so c is 1.45, -1.45, -1.45, 1.45: of the first and the last the key 0.1 is drawn
    >>> ClipCov()(tokens, gather_one).advantages
    tensor([ 1.,  1., -1.,  0.])
    ```
    """

    share: float = 2e-4
    lower: float = 1.0
    upper: float = 5.0
    epsilon: float = 0.2
    epsilon_high: float = 0.2

    positive_only = False

    def __post_init__(self):
        check_number(self, "share", above=0, at_most=1)
        check_number(self, "upper")
        check_number(self, "lower", below=self.upper)
        check_number(self, "epsilon", at_least=0)
        check_number(self, "epsilon_high", at_least=0)

    def __call__(self, tokens: Tokens, gather: Gather) -> Edit:
        count, covs = covariances(tokens, gather)
        above = (tokens.advantages > 0) & (tokens.ratios > 1 + self.epsilon_high)
        below = (tokens.advantages < 0) & (tokens.ratios < 1 - self.epsilon)
        band = (covs > self.lower) & (covs < self.upper) & ~(above | below)
        keys, own = gather(tokens.keys[band])
        others, _ = gather(covs[band])
        chosen = _draw(keys, others, max(1, int(self.share * count)))
        advantages = tokens.advantages.clone()
        advantages[band] = advantages[band].masked_fill(chosen[own], 0)
        metrics = {}
        if count > 0:
            metrics = {"clip_cov/share": chosen.sum().item() / count, "clip_cov/band_share": len(keys) / count}
        return Edit(advantages=advantages, metrics=metrics)


def _draw(keys: torch.Tensor, covs: torch.Tensor, count: int) -> torch.Tensor:
    """Boolean mask of `count` smallest keys; equal ones, which responses that begin alike have, by covariance."""
    if count >= len(keys):
        return torch.ones_like(keys, dtype=torch.bool)
    cut = -kth_largest(-keys, count)
    below, tied = keys < cut, keys == cut
    return below | (tied & (covs >= kth_largest(covs[tied], count - int(below.sum()))))
