r"""
CE-GPPO ([arXiv 2509.20712](https://huggingface.co/papers/2509.20712)): tokens beyond the clip range keep a bounded gradient
in place of none.

$$
g_{i,t} = A_i \cdot \begin{cases}
\beta_1 (1 - \epsilon_\text{low}) & A_i < 0,\ r_{i,t} < 1 - \epsilon_\text{low} \\
\beta_2 (1 + \epsilon_\text{high}) & A_i > 0,\ r_{i,t} > 1 + \epsilon_\text{high} \\
r_{i,t} & \text{otherwise}
\end{cases}
\qquad \nabla \mathcal L_{i,t} = -g_{i,t} \nabla \ln \pi_\theta(y_{i,t})
$$

Paper; as a rule derived, with the same gradient: the advantage times \\( g / (r A) \\) in an unclipped loss.
"""

import math
from dataclasses import dataclass

import torch

from ..parameters import check_number
from ..tokens import MIN_ADVANTAGE, Edit, Gather, Tokens


@dataclass(frozen=True)
class CEGPPO:
    r"""
    The token rule of CE-GPPO. It needs an unclipped loss: the clip range is the rule's own.

    Args:
        beta1 (`float`, *optional*, defaults to `0.5`):
            \\( \beta_1 \\), at least 0: for wrong responses below the range. The paper's for 1.5B; 0.75 for 7B.
        beta2 (`float`, *optional*, defaults to `1.0`):
            \\( \beta_2 \\), at least 0: for correct responses above the range.
        clip_low, clip_high (`float`, *optional*, defaults to `0.2`):
            \\( \epsilon_\text{low} \\) in [0, 1) and \\( \epsilon_\text{high} \\), at least 0.

    Raises:
        `ValueError`: for a value out of its range.

    Example:

    ```python
    >>> from stapo_trl.rules.tokens import gather_one
    >>> ratios, zeros = torch.tensor([0.5, 1.0, 1.5]), torch.zeros(3)
    >>> tokens = Tokens(ratios.log(), zeros, torch.tensor([-1.0, 1.0, 1.0]), zeros, zeros, zeros)
    >>> CEGPPO()(tokens, gather_one).advantages  # 0.5 * 0.8 / 0.5 and 1.2 / 1.5
    tensor([-0.8000,  1.0000,  0.8000])
    ```
    """

    beta1: float = 0.5
    beta2: float = 1.0
    clip_low: float = 0.2
    clip_high: float = 0.2

    positive_only = False
    loss = "unclipped"

    def __post_init__(self):
        check_number(self, "beta1", at_least=0, below=math.inf)
        check_number(self, "beta2", at_least=0, below=math.inf)
        check_number(self, "clip_low", at_least=0, below=1)
        check_number(self, "clip_high", at_least=0)

    def __call__(self, tokens: Tokens, gather: Gather) -> Edit:
        ratios = tokens.ratios
        below = (tokens.advantages < -MIN_ADVANTAGE) & (ratios < 1 - self.clip_low)
        above = (tokens.advantages > MIN_ADVANTAGE) & (ratios > 1 + self.clip_high)
        weights = torch.ones_like(ratios)
        weights[below] = self.beta1 * (1 - self.clip_low) / ratios[below]
        weights[above] = self.beta2 * (1 + self.clip_high) / ratios[above]
        return Edit(advantages=tokens.advantages * weights)
