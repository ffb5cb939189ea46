r"""
STARE ([arXiv 2606.19236](https://huggingface.co/papers/2606.19236)): while the entropy is low, the most surprising tokens
weigh more in correct responses and, in the variant C2, less in wrong ones.

$$
A'_{i,t} = A_i \cdot \begin{cases}
W & g = 1,\ A_i > 0,\ -\ln \pi_\theta(y_{i,t}) \text{ among the largest share } P \text{ of the tokens with } A > 0 \\
M & \text{C2},\ g = 1,\ A_i < 0,\ -\ln \pi_\theta(y_{i,t}) \text{ among the largest share } P \text{ of those with } A < 0 \\
1 & \text{otherwise}
\end{cases}
\qquad g = 1[\bar H < H_\text{tgt}]
$$

Paper and official code. Both mean entropy and selection are of the optimizer step here; the code takes the gate from the
rollout batch and selects in each micro-batch (Algorithm 1 says batch). The paper's adaptive schedule of W and M, off by
default there, is left out.
"""

import math
from dataclasses import dataclass

import torch

from .parameters import check_choice, check_number
from .selection import averages, count_share, kth_largest
from .tokens import MIN_ADVANTAGE, Edit, Gather, Tokens


@dataclass(frozen=True)
class STARE:
    r"""
    The token rule of STARE. Its defaults are those of the official script for 7B; 14B and 32B take 1.05 and 0.95.

    Args:
        variant (`str`, *optional*, defaults to `"O1"`):
            `"O1"` amplifies surprising tokens of correct responses; `"C2"` also attenuates those of wrong ones.
        share (`float`, *optional*, defaults to `0.1`):
            P, in (0, 1]: share of the tokens of each sign that are surprising, at least one.
        positive_weight (`float`, *optional*, defaults to `1.1`):
            W, at least 1.
        negative_weight (`float`, *optional*, defaults to `0.9`):
            M, in (0, 1].
        target_entropy (`float`, *optional*, defaults to `0.3`):
            \\( H_\text{tgt} \\), at least 0, in nats: a step whose mean entropy is not below it is left as it is.

    Raises:
        `ValueError`: for a value out of its range.

    Example:

    ```python
    >>> from stapo_trl.rules.tokens import gather_one
    >>> probs, entropies = torch.tensor([0.9, 0.01, 0.5, 0.2]), torch.tensor([0.1, 0.3, 0.2, 0.1])
    >>> tokens = Tokens(probs.log(), entropies, torch.tensor([1.0, 1.0, 1.0, -1.0]), probs.log(), *[torch.zeros(4)] * 2)
    >>> # The mean entropy is 0.7 / 4 = 0.175 < 0.3, and of three positive tokens ceil(0.1 * 3) = 1 is surprising
    >>> STARE()(tokens, gather_one).advantages
    tensor([ 1.0000,  1.1000,  1.0000, -1.0000])
    ```
    """

    variant: str = "O1"
    share: float = 0.1
    positive_weight: float = 1.1
    negative_weight: float = 0.9
    target_entropy: float = 0.3

    positive_only = False  # a bare class attribute, no field

    def __post_init__(self):
        check_choice(self, "variant", ("O1", "C2"))
        check_number(self, "share", above=0, at_most=1)
        check_number(self, "positive_weight", at_least=1, below=math.inf)
        check_number(self, "negative_weight", above=0, at_most=1)
        check_number(self, "target_entropy", at_least=0)

    def __call__(self, tokens: Tokens, gather: Gather) -> Edit:
        count, (mean_entropy,) = averages(gather, tokens.entropies)
        is_open = count > 0 and mean_entropy < self.target_entropy
        weights = torch.ones_like(tokens.advantages)
        sides = [(tokens.advantages > MIN_ADVANTAGE, self.positive_weight)]
        if self.variant == "C2":
            sides.append((tokens.advantages < -MIN_ADVANTAGE, self.negative_weight))
        for side, weight in sides if is_open else ():
            surprisals, _ = gather(-tokens.logps[side])
            if len(surprisals) > 0:
                threshold = kth_largest(surprisals, count_share(self.share, len(surprisals)))
                weights[side & (-tokens.logps >= threshold)] = weight
        metrics = {"stare/gate": float(is_open), "stare/entropy": mean_entropy} if count > 0 else {}
        return Edit(advantages=tokens.advantages * weights, metrics=metrics)
