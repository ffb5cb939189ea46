"""Accuracy on held-out problems of the embedded task, without touching the training run."""

from dataclasses import dataclass

import numpy as np
from datasets import Dataset
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from .evaluation.benchmark import from_dataset
from .evaluation.run import answer
from .evaluation.sampler import TransformersSampler
from .evaluation.settings import SamplingSettings


@dataclass(frozen=True)
class Accuracy:
    """
    Share of right answers.

    Args:
        mean (`float`):
            Mean over problems of the share of right samples, in [0, 1].
        standard_error (`float`):
            Standard error of that mean, over problems.
    """

    mean: float
    standard_error: float

    def __str__(self) -> str:
        return f"{100 * self.mean:.1f} ± {100 * self.standard_error:.1f} %"


def measure_accuracy(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    problems: Dataset,
    max_new_tokens: int,
    num_samples: int = 1,
    temperature: float = 0.0,
) -> Accuracy:
    """
    How many held-out problems a policy answers rightly.

    Args:
        model (`PreTrainedModel`):
            The policy. Its mode and the generators of random numbers are as before afterwards.
        tokenizer (`PreTrainedTokenizerBase`):
            Its tokenizer.
        problems (`Dataset`):
            Columns `prompt`, `solution` and `problem_id`.
        max_new_tokens (`int`):
            Longest answer, in tokens.
        num_samples (`int`, defaults to `1`):
            Answers for each problem.
        temperature (`float`, defaults to `0.0`):
            Sampling temperature; 0 decodes greedily.

    Returns:
        [`Accuracy`]: mean and standard error over problems.
    """
    sampler = TransformersSampler(model, tokenizer, batch_size=256)
    settings = SamplingSettings(temperature, 1.0, max_new_tokens)
    requests = from_dataset("heldout", problems).requests(num_samples)
    samples = answer(sampler, requests, settings, file=None, show_progress=False)
    shares = np.array([sample.correct for sample in samples], dtype=float).reshape(-1, num_samples).mean(1)
    return Accuracy(float(shares.mean()), float(shares.std(ddof=1) / np.sqrt(len(shares))))
