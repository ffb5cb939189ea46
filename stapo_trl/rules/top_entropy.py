r"""
80/20 ([arXiv 2506.01939](https://huggingface.co/papers/2506.01939)): the policy gradient of the tokens with the highest
entropy only.

$$
I_{i,t} = 1[H_{i,t} \ge \tau_\rho], \qquad \tau_\rho \text{ the } \lceil \rho N \rceil\text{-th largest entropy of the } N \text{ tokens}
$$

The official code divides by the selected tokens, in each micro-batch; the paper's formula divides by all of them, as
`top_entropy_quantile` of TRL does. Here the window is the optimizer step.
"""

from dataclasses import dataclass

from .parameters import check_flag, check_number
from .selection import count_share, kth_largest
from .tokens import Edit, Gather, Tokens


@dataclass(frozen=True)
class TopEntropy:
    r"""
    The token rule of 80/20.

    Args:
        share (`float`, *optional*, defaults to `0.2`):
            \\( \rho \\), in (0, 1], the paper's value: share of the tokens that is trained, rounded up. Of equal entropies
            at the threshold all are.
        divide_by_all (`bool`, *optional*, defaults to `False`):
            `False` is the official code: the other tokens leave the sum of the loss and its normaliser. `True` is the
            paper's formula: they leave the sum only, and keep their KL term and entropy bonus if there are any.

    Raises:
        `ValueError`: for a value out of its range.

    Example:

    ```python
    >>> import torch
    >>> from stapo_trl.rules.tokens import gather_one
    >>> entropies = torch.tensor([0.1, 2.0, 0.3, 1.0, 0.2, 0.4])
    >>> tokens = Tokens(*[torch.zeros(6)] * 6)._replace(entropies=entropies)
    >>> TopEntropy()(tokens, gather_one).keep  # ceil(0.2 * 6) = 2 of six
    tensor([False,  True, False,  True, False, False])
    ```
    """

    share: float = 0.2
    divide_by_all: bool = False

    positive_only = False

    def __post_init__(self):
        check_number(self, "share", above=0, at_most=1)
        check_flag(self, "divide_by_all")

    def __call__(self, tokens: Tokens, gather: Gather) -> Edit:
        entropies, _ = gather(tokens.entropies)
        if len(entropies) == 0:
            return Edit()
        threshold = kth_largest(entropies, count_share(self.share, len(entropies)))
        keep, metrics = tokens.entropies >= threshold, {"top_entropy/threshold": threshold.item()}
        if self.divide_by_all:
            return Edit(advantages=tokens.advantages.masked_fill(~keep, 0), metrics=metrics)
        return Edit(keep, metrics=metrics)
