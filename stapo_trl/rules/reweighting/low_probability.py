r"""
Advantage reweighting ([arXiv 2505.12929](https://huggingface.co/papers/2505.12929), "AR" there): improbable tokens, whose
gradients are large, weigh less.

$$
A'_{i,t} = A_i\,(\alpha\, \pi_{\theta_\text{old}}(y_{i,t}) + 1 - \alpha)
$$

Paper. Its other half, Lopti, takes two optimizer steps and is no token rule.
"""

from dataclasses import dataclass

from ..parameters import check_number
from ..tokens import Edit, Gather, Tokens


@dataclass(frozen=True)
class LowProbability:
    r"""
    The token rule of AR.

    Args:
        alpha (`float`, *optional*, defaults to `0.2`):
            \\( \alpha \\), in [0, 1]: the weight of an improbable token is 1 - alpha. The paper's value without Lopti,
            with which it takes 0.3. `0.0` changes nothing.

    Raises:
        `ValueError`: for a value out of its range.

    Example:

    ```python
    >>> import torch
    >>> from stapo_trl.rules.tokens import gather_one
    >>> logps = torch.tensor([0.9, 0.1]).log()
    >>> tokens = Tokens(logps, logps, torch.tensor([1.0, -1.0]), logps, logps, logps)
    >>> LowProbability(alpha=0.3)(tokens, gather_one).advantages  # 0.3 * 0.9 + 0.7, and 0.3 * 0.1 + 0.7
    tensor([ 0.9700, -0.7300])
    ```
    """

    alpha: float = 0.2

    positive_only = False

    def __post_init__(self):
        check_number(self, "alpha", at_least=0, at_most=1)

    def __call__(self, tokens: Tokens, gather: Gather) -> Edit:
        return Edit(advantages=tokens.advantages * (self.alpha * tokens.old_logps.exp() + (1 - self.alpha)))
