r"""
Entropy shaping of the advantage ([arXiv 2506.14758](https://huggingface.co/papers/2506.14758)): uncertain tokens get a bonus,
too small to turn an advantage over.

$$
A'_{i,t} = A_i + \min(\alpha H_{i,t},\ |A_i| / \kappa)
$$

The formula is from third parties' notes; the published values of the two constants were not found, so that those below are
ours.
"""

import math
from dataclasses import dataclass

import torch

from ..parameters import check_number
from ..tokens import Edit, Gather, Tokens


@dataclass(frozen=True)
class EntropyShaping:
    r"""
    The token rule of entropy shaping.

    Args:
        alpha (`float`, *optional*, defaults to `0.4`):
            \\( \alpha \\), at least 0, the bonus for a nat. `0.0` changes nothing.
        kappa (`float`, *optional*, defaults to `2.0`):
            \\( \kappa \\), above 1: the bonus is at most this part of the advantage.

    Raises:
        `ValueError`: for a value out of its range.

    Example:

    ```python
    >>> from stapo_trl.rules.tokens import gather_one
    >>> entropies, zeros = torch.tensor([0.5, 2.0, 2.0]), torch.zeros(3)
    >>> tokens = Tokens(zeros, entropies, torch.tensor([1.0, 1.0, -1.0]), zeros, zeros, zeros)
    >>> EntropyShaping()(tokens, gather_one).advantages  # 0.4 * 0.5 = 0.2; 0.4 * 2 is more than 1 / 2
    tensor([ 1.2000,  1.5000, -0.5000])
    ```
    """

    alpha: float = 0.4
    kappa: float = 2.0

    positive_only = False

    def __post_init__(self):
        check_number(self, "alpha", at_least=0, below=math.inf)
        check_number(self, "kappa", above=1)

    def __call__(self, tokens: Tokens, gather: Gather) -> Edit:
        bonus = torch.minimum(self.alpha * tokens.entropies, tokens.advantages.abs() / self.kappa)
        return Edit(advantages=tokens.advantages + bonus)
