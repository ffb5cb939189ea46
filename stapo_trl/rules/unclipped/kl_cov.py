r"""
KL-Cov ([arXiv 2505.22617](https://huggingface.co/papers/2505.22617)): the few tokens whose advantage and log-probability vary
together most are held to the old policy, and nothing is clipped.

$$
\mathcal L_{i,t} = -r_{i,t} A_i + 1[c_{i,t} \text{ among the } \max(1, \lfloor \text{share} \cdot N \rfloor) \text{ largest}]\;
\beta\, |\ln r_{i,t}|, \qquad c_{i,t} = (A_i - \bar A)\,(\ln \pi_\theta(y_{i,t}) - \overline{\ln \pi_\theta})
$$

Paper and official code; as a rule derived, with the same gradient: \\( A' = A - \beta\, \mathrm{sign}(\ln r) / r \\). Where
\\( r = 1 \\), so with one optimizer step per generation, it does nothing, as in the code. Selection is of the optimizer
step here, of a micro-batch there.
"""

import math
from dataclasses import dataclass

from ..parameters import check_number
from ..selection import covariances, kth_largest
from ..tokens import Edit, Gather, Tokens


@dataclass(frozen=True)
class KLCov:
    r"""
    The token rule of KL-Cov. It needs an unclipped loss.

    Args:
        share (`float`, *optional*, defaults to `0.0002`):
            Of all tokens, in (0, 1]: those with the largest covariance, at least one.
        coef (`float`, *optional*, defaults to `1.0`):
            \\( \beta \\), at least 0. `0.0` changes nothing.

    Raises:
        `ValueError`: for a value out of its range.

    Example:

    ```python
    >>> import torch
    >>> from stapo_trl.rules.tokens import gather_one
    >>> logps, ratios = torch.tensor([-0.1, -3.0, -0.1, -3.0]), torch.tensor([1.25, 1.0, 1.0, 1.0])
    >>> advantages, zeros = torch.tensor([2.0, 1.0, -1.0, -1.0]), torch.zeros(4)
    >>> tokens = Tokens(logps, zeros, advantages, logps - ratios.log(), zeros, zeros)
    >>> KLCov()(tokens, gather_one).advantages  # c is largest for the first: 2 - 1 / 1.25
    tensor([ 1.2000,  1.0000, -1.0000, -1.0000])
    ```
    """

    share: float = 2e-4
    coef: float = 1.0

    positive_only = False
    loss = "unclipped"
    flips_signs = True

    def __post_init__(self):
        check_number(self, "share", above=0, at_most=1)
        check_number(self, "coef", at_least=0, below=math.inf)

    def __call__(self, tokens: Tokens, gather: Gather) -> Edit:
        count, covs = covariances(tokens, gather)
        if count == 0:
            return Edit()
        threshold = kth_largest(gather(covs)[0], max(1, int(self.share * count)))
        chosen = (covs >= threshold) & (covs != 0)  # without any advantage all are zero, and none is the largest
        penalty = chosen * self.coef * (tokens.logps - tokens.old_logps).sign() / tokens.ratios
        return Edit(advantages=tokens.advantages - penalty, metrics={"kl_cov/threshold": threshold.item()})
