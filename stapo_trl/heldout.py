"""Accuracy on held-out problems, by greedy decoding and by sampling, without touching the training run."""

import math
from dataclasses import dataclass

import torch
from datasets import Dataset
from transformers import GenerationConfig, PreTrainedModel, PreTrainedTokenizerBase

from .rewards import grade


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


@torch.no_grad()
def measure_accuracy(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    problems: Dataset,
    max_new_tokens: int,
    num_samples: int = 1,
    temperature: float = 0.0,
    batch_size: int = 256,
    seed: int = 0,
) -> Accuracy:
    """
    How many held-out problems a policy answers rightly.

    Args:
        model (`PreTrainedModel`):
            The policy. Its mode and the generators of random numbers are as before afterwards.
        tokenizer (`PreTrainedTokenizerBase`):
            Its tokenizer, padding on the left.
        problems (`Dataset`):
            Columns `prompt` (plain text) and `solution`.
        max_new_tokens (`int`):
            Longest answer, in tokens.
        num_samples (`int`, defaults to `1`):
            Answers for each problem.
        temperature (`float`, defaults to `0.0`):
            Sampling temperature; 0 decodes greedily.
        batch_size (`int`, defaults to `256`):
            Answers generated at a time.
        seed (`int`, defaults to `0`):
            Seed of the sampling.

    Returns:
        [`Accuracy`]: mean and standard error over problems.
    """
    # Every sampling field is given, so that the model's own generation defaults cannot change the result
    sampling = {"do_sample": temperature > 0, "num_beams": 1, "repetition_penalty": 1.0}
    if temperature > 0:
        sampling |= {"temperature": temperature, "top_k": 0, "top_p": 1.0}
    config = GenerationConfig(
        max_new_tokens=max_new_tokens,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=model.generation_config.eos_token_id or tokenizer.eos_token_id,
        **sampling,
    )
    prompts = [prompt for prompt in problems["prompt"] for _ in range(num_samples)]
    golds = [solution for solution in problems["solution"] for _ in range(num_samples)]
    was_training, own_config = model.training, model.generation_config
    model.eval()
    answers = []
    try:
        model.generation_config = config
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            for start in range(0, len(prompts), batch_size):
                batch = tokenizer(prompts[start : start + batch_size], return_tensors="pt", padding=True)
                batch = {name: batch[name].to(model.device) for name in ("input_ids", "attention_mask")}
                ids = model.generate(**batch)[:, batch["input_ids"].size(1) :]
                answers += tokenizer.batch_decode(ids, skip_special_tokens=True)
    finally:
        model.generation_config = own_config
        model.train(was_training)
    right = torch.tensor([verdict.kind == "correct" for verdict in grade(answers, golds)], dtype=torch.float64)
    shares = right.view(-1, num_samples).mean(1)
    return Accuracy(shares.mean().item(), (shares.std() / math.sqrt(len(shares))).item())
