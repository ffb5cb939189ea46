r"""
DPPO ([arXiv 2602.04879](https://huggingface.co/papers/2602.04879)): a token leaves the sum when its own probability has moved
too far, where PPO looks at the ratio.

$$
A'_{i,t} = 0 \text{ if } D_{i,t} > \delta \text{ and the update would push } p \text{ further from } p_\text{old}, \qquad
D = |p - p_\text{old}| \text{ or } p_\text{old} \ln\tfrac{p_\text{old}}{p} + (1 - p_\text{old}) \ln\tfrac{1 - p_\text{old}}{1 - p}
$$

The loss of the other tokens is CISPO's, \\( -\mathrm{sg}(\min(r, c))\, A \ln \pi_\theta \\), with \\( c \\) = `epsilon_high`: 20
in TRL's implementation (releases 1.0 to 1.8), 10 in the official code. Paper, binary divergences; those over the K most
probable tokens need the rollout's. \\( p_\text{old} \\) is the rollout engine's probability in the paper, and that of TRL's
old policy here.
"""

from dataclasses import dataclass

import torch

from ..parameters import check_choice, check_number
from ..tokens import MIN_ADVANTAGE, Edit, Gather, Tokens


PUBLISHED = {"tv": 0.15, "kl": 0.05}


@dataclass(frozen=True)
class DPPO:
    r"""
    The token rule of DPPO. It needs CISPO's loss.

    Args:
        divergence (`str`, *optional*, defaults to `"tv"`):
            `"tv"`, total variation, or `"kl"`.
        threshold (`float`, *optional*):
            \\( \delta \\), at least 0; by default the paper's 0.15 for `"tv"` and 0.05 for `"kl"`. `1.0` with `"tv"`
            changes nothing.

    Raises:
        `ValueError`: for a value out of its range.

    Example:

    ```python
    >>> from stapo_trl.rules.tokens import gather_one
    >>> probs, old, zeros = torch.tensor([0.9, 0.2, 0.9]), torch.tensor([0.7, 0.1, 0.7]), torch.zeros(3)
    >>> tokens = Tokens(probs.log(), zeros, torch.tensor([1.0, 1.0, -1.0]), old.log(), zeros, zeros)
    >>> DPPO()(tokens, gather_one).advantages  # 0.9 - 0.7 > 0.15; 0.2 - 0.1 is less; the third is pushed back
    tensor([ 0.,  1., -1.])
    ```
    """

    divergence: str = "tv"
    threshold: float | None = None

    positive_only = False
    loss = "cispo"

    def __post_init__(self):
        check_choice(self, "divergence", tuple(PUBLISHED))
        if self.threshold is not None:
            check_number(self, "threshold", at_least=0)

    def __call__(self, tokens: Tokens, gather: Gather) -> Edit:
        threshold = PUBLISHED[self.divergence] if self.threshold is None else self.threshold
        probs, old = tokens.logps.exp(), tokens.old_logps.exp()
        distance = (probs - old).abs() if self.divergence == "tv" else _binary_kl(tokens.old_logps, tokens.logps)
        away = ((tokens.advantages > MIN_ADVANTAGE) & (probs > old)) | (
            (tokens.advantages < -MIN_ADVANTAGE) & (probs < old)
        )
        return Edit(advantages=tokens.advantages.masked_fill(away & (distance > threshold), 0))


def _binary_kl(old_logps: torch.Tensor, logps: torch.Tensor) -> torch.Tensor:
    """KL divergence in nats of "this token or another", from log-probabilities; stable near 0 and 1."""
    old, tiny = old_logps.exp(), torch.finfo(logps.dtype).tiny
    rest, old_rest = (-torch.expm1(x) for x in (logps, old_logps))
    return old * (old_logps - logps) + old_rest * (old_rest.clamp(min=tiny).log() - rest.clamp(min=tiny).log())
