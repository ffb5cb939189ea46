r"""
Entropy-driven advantage, "EDA" of EDGE-GRPO ([arXiv 2507.21848](https://huggingface.co/papers/2507.21848)): responses that
are more sure than the others of their step weigh more.

$$
A'_{i,t} = A_i\, \frac{\frac{1}{B} \sum_j \bar H_j}{\bar H_i}, \qquad \bar H_i \text{ the mean entropy of response } i
$$

Official code, which averages over padding too, and over a micro-batch of all ranks; here over valid tokens and the
optimizer step. Responses without a valid token do not count.
"""

from dataclasses import dataclass

import torch

from ..tokens import Edit, Gather, Tokens


MIN_ENTROPY = 1e-6  # nats; a response below it is one that the policy is sure of, and hardly has a gradient


@dataclass(frozen=True)
class EntropyDriven:
    """
    The token rule of EDA. It has no parameters.

    Example:

    ```python
    >>> from stapo_trl.rules.tokens import gather_one
    >>> entropies, zeros = torch.tensor([0.5, 1.5, 3.0]), torch.zeros(3)
    >>> tokens = Tokens(zeros, entropies, torch.ones(3), zeros, zeros, torch.tensor([0, 0, 1]))
    >>> EntropyDriven()(tokens, gather_one).advantages  # means 1 and 3, their mean 2: factors 2 / 1 and 2 / 3
    tensor([2.0000, 2.0000, 0.6667])
    ```
    """

    positive_only = False

    def __call__(self, tokens: Tokens, gather: Gather) -> Edit:
        _, numbers, counts = tokens.responses.unique(return_inverse=True, return_counts=True)
        sums = torch.zeros(len(counts), dtype=tokens.entropies.dtype, device=counts.device)
        means = (sums.index_add(0, numbers, tokens.entropies) / counts).clamp(min=MIN_ENTROPY)
        every = gather(means)[0]
        factors = every.mean() / means
        metrics = {"entropy_driven/largest_factor": (every.mean() / every.min()).item()} if len(every) else {}
        return Edit(advantages=tokens.advantages * factors[numbers], metrics=metrics)
