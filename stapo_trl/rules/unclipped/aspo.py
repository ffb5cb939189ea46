r"""
ASPO ([arXiv 2510.06062](https://huggingface.co/papers/2510.06062)): tokens of correct responses are weighed by the inverse
ratio, so that improbable ones gain and those that rose already do not run away.

$$
\nabla \mathcal L_{i,t} = -g_{i,t} A_i \nabla \ln \pi_\theta(y_{i,t}), \qquad
g = \begin{cases}
0 & A > 0,\ r > 1 + e \quad\text{or}\quad A < 0,\ r < 1 - e \\
\min(1/r,\ c) & A > 0 \\
\min(r,\ c) & A < 0
\end{cases}
$$

with \\( e \\) larger for the tokens above the response's own quantile of entropy. Official code; as a rule derived, with
the same gradient: the advantage times \\( g / r \\) in an unclipped loss. The official run adds a KL term of 0.001 on the
tokens of low entropy, which is not part of the rule.
"""

import math
from dataclasses import dataclass

import torch

from ..parameters import check_number
from ..selection import quantile
from ..tokens import MIN_ADVANTAGE, Edit, Gather, Tokens


@dataclass(frozen=True)
class ASPO:
    r"""
    The token rule of ASPO. It needs an unclipped loss: the clip range is the rule's own.

    Args:
        clip (`float`, *optional*, defaults to `0.2`):
            \\( e \\), at least 0.
        clip_high_entropy (`float`, *optional*, defaults to `0.4`):
            \\( e \\) of the tokens of high entropy, at least 0.
        entropy_quantile (`float`, *optional*, defaults to `0.8`):
            In [0, 1]: tokens above this quantile of their response's entropies have a high one.
        cap (`float`, *optional*, defaults to `3.0`):
            \\( c \\), at least 1.

    Raises:
        `ValueError`: for a value out of its range.

    Example:

    ```python
    >>> from stapo_trl.rules.tokens import gather_one
    >>> ratios, zeros = torch.tensor([0.25, 1.3, 1.0, 0.5]), torch.zeros(4)
    >>> tokens = Tokens(ratios.log(), zeros, torch.tensor([1.0, 1.0, -1.0, -1.0]), zeros, zeros, zeros)
    >>> # No token is above its response's entropies: min(4, 3) / 0.25, above 1.2, as it was, below 0.8
    >>> ASPO()(tokens, gather_one).advantages
    tensor([12.,  0., -1., -0.])
    ```
    """

    clip: float = 0.2
    clip_high_entropy: float = 0.4
    entropy_quantile: float = 0.8
    cap: float = 3.0

    positive_only = False
    loss = "unclipped"

    def __post_init__(self):
        check_number(self, "clip", at_least=0)
        check_number(self, "clip_high_entropy", at_least=0)
        check_number(self, "entropy_quantile", at_least=0, at_most=1)
        check_number(self, "cap", at_least=1, below=math.inf)

    def __call__(self, tokens: Tokens, gather: Gather) -> Edit:
        ratios = tokens.ratios
        positive, negative = tokens.advantages > MIN_ADVANTAGE, tokens.advantages < -MIN_ADVANTAGE
        bound = torch.where(self._find_uncertain(tokens), self.clip_high_entropy, self.clip)
        clipped = (positive & (ratios > 1 + bound)) | (negative & (ratios < 1 - bound))
        weights = torch.where(positive, ratios.reciprocal().clamp(max=self.cap) / ratios, 1.0)
        weights = torch.where(negative, (self.cap / ratios).clamp(max=1.0), weights)
        return Edit(advantages=tokens.advantages * weights.masked_fill(clipped, 0))

    def _find_uncertain(self, tokens: Tokens) -> torch.Tensor:
        _, numbers, counts = tokens.responses.unique(return_inverse=True, return_counts=True)
        by_response = tokens.entropies[numbers.argsort()].split(counts.tolist())
        thresholds = [quantile(entropies, self.entropy_quantile) for entropies in by_response]
        return tokens.entropies > torch.stack([*thresholds, tokens.entropies.new_zeros(())])[numbers]
