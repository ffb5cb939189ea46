"""Accuracy on held-out problems of the embedded task, without touching the training run."""

from dataclasses import dataclass

import numpy as np
from datasets import Dataset
from transformers import PreTrainedModel, PreTrainedTokenizerBase, TrainerCallback
from trl.models import unwrap_model_for_generation

from ..evaluation.benchmark import from_dataset
from ..evaluation.run import sample_answers
from ..evaluation.sampling.settings import SamplingSettings
from ..evaluation.sampling.transformers_sampler import TransformersSampler


@dataclass(frozen=True)
class Accuracy:
    """Mean over problems of the share of right samples, and its standard error."""

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
    """Accuracy of a policy, whose mode stays as it is; 0 is greedy, and no random generator of the process is used."""
    sampler = TransformersSampler(model, tokenizer, batch_size=256)
    settings = SamplingSettings(temperature, 1.0, max_new_tokens)
    requests = from_dataset("heldout", problems).requests(num_samples)
    samples = sample_answers(sampler, requests, settings, file=None, show_progress=False)
    shares = np.array([sample.correct for sample in samples], dtype=float).reshape(-1, num_samples).mean(1)
    return Accuracy(float(shares.mean()), float(shares.std(ddof=1) / np.sqrt(len(shares))))


class HeldOutAccuracy(TrainerCallback):
    """
    Logs `heldout/greedy_accuracy` with the step's other metrics, and with `num_samples`, `heldout/sampled_accuracy`.

    The samples are drawn at temperature 1.
    """

    def __init__(self, trainer, problems: Dataset, every_steps: int, num_samples: int = 0):
        self.trainer, self.problems, self.every_steps, self.num_samples = trainer, problems, every_steps, num_samples

    def on_step_end(self, args, state, control, processing_class=None, **kwargs):
        if state.global_step % self.every_steps == 0:
            # On every process alike: the forward of a sharded model is collective
            with unwrap_model_for_generation(self.trainer.model_wrapped, self.trainer.accelerator) as model:
                task = (model, processing_class, self.problems, args.max_completion_length)
                self._log("greedy", measure_accuracy(*task))
                if self.num_samples > 0:
                    self._log("sampled", measure_accuracy(*task, self.num_samples, temperature=1.0))

    def _log(self, decoding: str, accuracy: Accuracy) -> None:
        self.trainer._metrics["train"][f"heldout/{decoding}_accuracy"].append(accuracy.mean)
