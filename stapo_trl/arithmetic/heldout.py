"""Accuracy on held-out problems of the embedded task, without touching the training run."""

from dataclasses import dataclass

import numpy as np
from datasets import Dataset
from transformers import PreTrainedModel, PreTrainedTokenizerBase, TrainerCallback
from trl.models import unwrap_model_for_generation

from ..evaluation.benchmark import from_dataset
from ..evaluation.run import answer
from ..evaluation.sampling.settings import SamplingSettings
from ..evaluation.sampling.transformers_sampler import TransformersSampler


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


class HeldOutAccuracy(TrainerCallback):
    """
    Accuracy on held-out problems, logged with the step's other metrics as `heldout/greedy_accuracy`, and
    `heldout/sampled_accuracy` if samples are asked for.

    Args:
        trainer ([`STAPOTrainer`]):
            The trainer whose policy is measured.
        problems (`Dataset`):
            Held-out problems.
        every_steps (`int`):
            Steps between two measurements.
        num_samples (`int`, *optional*, defaults to `0`):
            Samples for each problem at temperature 1.
    """

    def __init__(self, trainer, problems: Dataset, every_steps: int, num_samples: int = 0):
        self.trainer, self.problems, self.every_steps, self.num_samples = trainer, problems, every_steps, num_samples

    def on_step_end(self, args, state, control, processing_class=None, **kwargs):
        if state.global_step % self.every_steps == 0:
            # On every process alike: the forward of a sharded model is collective
            with unwrap_model_for_generation(self.trainer.model_wrapped, self.trainer.accelerator) as model:
                what = (model, processing_class, self.problems, args.max_completion_length)
                self._log("greedy", measure_accuracy(*what))
                if self.num_samples > 0:
                    self._log("sampled", measure_accuracy(*what, self.num_samples, temperature=1.0))

    def _log(self, decoding: str, accuracy: Accuracy) -> None:
        self.trainer._metrics["train"][f"heldout/{decoding}_accuracy"].append(accuracy.mean)
