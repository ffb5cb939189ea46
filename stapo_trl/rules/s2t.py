r"""
Silencing Spurious Tokens (S2T), the rule of STAPO
([arXiv 2602.15620](https://huggingface.co/papers/2602.15620), fifth version):

$$
I_{i,t} = 0 \quad\text{if}\quad A_i > 0 \;\wedge\; \pi_\theta(y_{i,t}) < \tau_p \;\wedge\; H_{i,t} < \tau_h^{(q)},
\qquad I_{i,t} = 1 \text{ otherwise.}
$$

Tokens that satisfy the first two conditions are *candidates*. \\( \tau_h^{(q)} \\) is the q-quantile of the entropies of
the candidates of one optimizer step; the first versions of the paper took it over all response tokens.
"""

import math
from dataclasses import dataclass

import torch

from .selection import quantile, smallest
from .tokens import MIN_ADVANTAGE, Edit, Gather, Tokens


PAPER_PROB_THRESHOLD, PAPER_QUANTILE = 0.002, 0.75
POPULATIONS, SELECTIONS = ("candidates", "all"), ("low_entropy", "high_entropy", "random")


@dataclass(frozen=True)
class S2T:
    r"""
    The token rule of STAPO and of its ablations.

    Args:
        prob_threshold (`float`, *optional*, defaults to `0.002`):
            \\( \tau_p \\), in [0, 1). A token at the threshold is no candidate.
        entropy_quantile (`float`, *optional*, defaults to `0.75`):
            q, in [0, 1]. `1.0` silences every candidate (the paper's FullMask), `0.0` none.
        entropy_population (`str`, *optional*, defaults to `"candidates"`):
            The tokens over which the quantile is taken: `"candidates"`, or `"all"` valid tokens (first versions).
        selection (`str`, *optional*, defaults to `"low_entropy"`):
            Which candidates are silenced. `"low_entropy"` is STAPO: those with an entropy below the quantile. The
            paper's ablations `"high_entropy"` and `"random"` silence as many.

    Raises:
        `ValueError`: for a value out of its range.

    Example:

    ```python
    >>> from stapo_trl.rules.tokens import gather_one
    >>> probs, entropies = torch.tensor([0.9, 0.001, 0.001, 0.001]), torch.tensor([0.1, 0.2, 0.4, 2.0])
    >>> tokens = Tokens(probs.log(), entropies, torch.ones(4), probs.log(), torch.zeros(4), torch.zeros(4))
    >>> # The candidates have the entropies 0.2, 0.4 and 2.0, whose 75 % quantile is 0.4 + 0.5 * (2.0 - 0.4) = 1.2: two of
    >>> # them lie below and are silenced
    >>> S2T()(tokens, gather_one).keep
    tensor([ True, False, False,  True])
    ```
    """

    prob_threshold: float = PAPER_PROB_THRESHOLD
    entropy_quantile: float = PAPER_QUANTILE
    entropy_population: str = "candidates"
    selection: str = "low_entropy"

    def __post_init__(self):
        if not (isinstance(self.prob_threshold, (int, float)) and 0.0 <= self.prob_threshold < 1.0):
            raise ValueError(
                f"`prob_threshold` (tau_p) must be a number in [0, 1), got {self.prob_threshold!r}. The paper uses "
                "0.002; 0.0 silences nothing."
            )
        if not (isinstance(self.entropy_quantile, (int, float)) and 0.0 <= self.entropy_quantile <= 1.0):
            raise ValueError(
                f"`entropy_quantile` (q) must be a number in [0, 1], got {self.entropy_quantile!r}. The paper uses 0.75 "
                "(a share, not a percentage)."
            )
        for name, choices in (("entropy_population", POPULATIONS), ("selection", SELECTIONS)):
            if getattr(self, name) not in choices:
                raise ValueError(f"`{name}` must be one of {list(choices)}, got {getattr(self, name)!r}.")

    @property
    def positive_only(self) -> bool:
        return self.entropy_population == "candidates"

    def __call__(self, tokens: Tokens, gather: Gather) -> Edit:
        log_threshold = math.log(self.prob_threshold) if self.prob_threshold > 0 else -math.inf
        candidates = (tokens.logps < log_threshold) & (tokens.advantages > MIN_ADVANTAGE)
        entropies, own = gather(tokens.entropies[candidates])
        population = entropies if self.positive_only else gather(tokens.entropies)[0]
        threshold = entropy_threshold(population, self.entropy_quantile)
        silenced = entropies < threshold
        if self.selection == "high_entropy":
            silenced = smallest(-entropies, int(silenced.sum()))
        elif self.selection == "random":
            silenced = smallest(gather(tokens.keys[candidates])[0], int(silenced.sum()))
        keep = torch.ones_like(candidates)
        keep[candidates] = ~silenced[own]

        quadrants = None
        if len(population) > 0:  # at q = 0 and 1 the rule has no finite threshold, and the paper's parts the quadrants
            edge = threshold if threshold.isfinite() else quantile(population, PAPER_QUANTILE)
            quadrants = (self.prob_threshold, edge.item())
        metrics = {"s2t/entropy_threshold": threshold.item()} if threshold.isfinite() else {}
        return Edit(keep, candidates=candidates, quadrants=quadrants, metrics=metrics)


def entropy_threshold(entropies: torch.Tensor, entropy_quantile: float) -> torch.Tensor:
    r"""
    The entropy below which a candidate is silenced, \\( \tau_h^{(q)} \\).

    Args:
        entropies (`torch.Tensor` of shape (M,)):
            Entropies of the population, of all processes, in nats.
        entropy_quantile (`float`):
            q in [0, 1].

    Returns:
        `torch.Tensor`: scalar, in nats. Infinite at q = 1, so that the candidate with the highest entropy is silenced
        too; minus infinite at q = 0 or without any token.
    """
    if entropy_quantile >= 1.0:
        return entropies.new_tensor(math.inf)
    if entropy_quantile <= 0.0 or entropies.numel() == 0:
        return entropies.new_tensor(-math.inf)
    return quantile(entropies, entropy_quantile)
