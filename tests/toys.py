"""Small inputs and recorders that the tests of the trainer share."""

import math
import zlib
from pathlib import Path

import pytest
import torch
import trl
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM
from trl import GRPOTrainer

from stapo_trl.arithmetic.warm_start import VOCABULARY
from stapo_trl.observe.files import read_metrics
from stapo_trl.observe.token_log import read_token_log


CHAT_TEMPLATES = Path(trl.__file__).parent / "chat_templates"

# An untrained model gives each of its 25 tokens about 1/25: a good part of its tokens are below this threshold.
TOY_PROB_THRESHOLD = 0.039

# Two optimizer steps on a CPU
TOY_SETTINGS = {
    "num_generations": 4,
    "max_completion_length": 12,
    "max_steps": 2,
    "warmup_steps": 0,
    "lr_scheduler_type": "constant",
    "epsilon_high": 0.28,
    "logging_steps": 1,
    "save_strategy": "no",
    "report_to": "none",
    "use_cpu": True,
    "bf16": False,
    "gradient_checkpointing": False,
    "disable_tqdm": True,
}

SHAPES = {
    "one micro-batch": {},
    "accumulation": {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 4},
    "two steps per generation, two iterations": {
        "per_device_train_batch_size": 4,
        "gradient_accumulation_steps": 2,
        "steps_per_generation": 4,
        "num_iterations": 2,
        "max_steps": 4,
    },
}


def content_reward(completions, **kwargs):
    """A checksum of the text: spread in every group, and the same in every run and process."""
    return [zlib.crc32(completion.encode()) % 7 - 3.0 for completion in completions]


def make_inputs(num_rows: int = 4, length: int = 6, seed: int = 0) -> dict[str, torch.Tensor]:
    """A micro-batch of random tokens, as TRL hands it to `compute_loss`."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(2, len(VOCABULARY), (num_rows, 3 + length), generator=generator)
    lengths = torch.randint(1, length + 1, (num_rows, 1), generator=generator)
    mask = (torch.arange(length) < lengths).long()
    return {
        "prompt_ids": ids[:, :3],
        "prompt_mask": torch.ones(num_rows, 3, dtype=torch.long),
        "completion_ids": ids[:, 3:] * mask,
        "completion_mask": mask,
        "advantages": torch.randn(num_rows, generator=generator),
        "num_items_in_batch": mask.sum(),
    }


def reference_keep_mask(logps, entropies, advantages, mask, tau=TOY_PROB_THRESHOLD, q=0.75, population="candidates"):
    """The rule of the paper over all tokens of an optimizer step, one token at a time: (B, T) boolean, True = trained."""
    tokens = [(i, t) for i, t in mask.nonzero().tolist() if entropies[i, t].isfinite() and logps[i, t].isfinite()]
    advantages = advantages.unsqueeze(1).expand_as(logps) if advantages.dim() == 1 else advantages
    candidates = [(i, t) for i, t in tokens if advantages[i, t] > 0 and math.exp(logps[i, t]) < tau]
    over = sorted(entropies[i, t].item() for i, t in (candidates if population == "candidates" else tokens))
    keep = torch.ones_like(mask, dtype=torch.bool)
    if not candidates:
        return keep
    position = q * (len(over) - 1)
    low, high = over[math.floor(position)], over[math.ceil(position)]
    threshold = low + (position - math.floor(position)) * (high - low) if q < 1 else math.inf
    for i, t in candidates:
        keep[i, t] = entropies[i, t].item() >= threshold
    return keep


def run_step(trainer, micro_batches: list[dict]) -> list[torch.Tensor]:
    """Losses of one optimizer step over given inputs, gradients accumulated, as the training loop computes them."""
    losses = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(GRPOTrainer, "_prepare_inputs", lambda self, inputs: inputs)
        trainer.model.train()
        trainer.model.zero_grad()
        trainer.get_batch_samples(iter(micro_batches), len(micro_batches), trainer.accelerator.device)
        trainer.current_gradient_accumulation_steps = len(micro_batches)
        for micro_batch in micro_batches:
            losses.append(trainer.compute_loss(trainer.model, trainer._prepare_inputs(micro_batch)))
            losses[-1].backward()
    return losses


def score(trainer, inputs: dict) -> tuple[torch.Tensor, torch.Tensor]:
    """Log-probs and entropies (B, T) of the current policy."""
    with torch.no_grad():
        return trainer._score(trainer.model, inputs).answer[:2]


def record_steps(trainer) -> list[tuple]:
    """Collects (inputs, scores, edited step) of every optimizer step from now on."""
    steps, edit_step = [], trainer._edit_step

    def recorded(inputs, scores, rng_states):
        step = edit_step(inputs, scores, rng_states)
        steps.append((inputs, scores, step))
        return step

    trainer._edit_step = recorded
    return steps


def find_silenced(steps: list[tuple]) -> list[tuple]:
    """(prompt, completion, position) of every silenced token of [`record_steps`]."""
    silenced = []
    for inputs, _, step in steps:
        for batch, keep_mask in zip(inputs, step.edit.keep_masks, strict=True):
            for row, position in (~keep_mask).nonzero().tolist():
                prompt = tuple(batch["prompt_ids"][row][batch["prompt_mask"][row].bool()].tolist())
                completion = tuple(batch["completion_ids"][row][batch["completion_mask"][row].bool()].tolist())
                silenced.append((prompt, completion, position))
    return silenced


def find_edits(steps) -> dict:
    """For each token of [`record_steps`] whether it is kept, and its advantage."""
    edits = {}
    for number, (inputs, _, step) in enumerate(steps):
        for batch, keep, edited in zip(inputs, step.edit.keep_masks, step.edit.advantages, strict=True):
            advantages = batch["advantages"][:, None].expand(keep.shape) if edited is None else edited
            for row, position in batch["completion_mask"].nonzero().tolist():
                prompt = tuple(batch["prompt_ids"][row][batch["prompt_mask"][row].bool()].tolist())
                completion = tuple(batch["completion_ids"][row][: position + 1].tolist())
                key = (number, prompt, completion, batch["advantages"][row].item())
                edits[key] = bool(keep[row, position]), advantages[row, position].item()
    return edits


def weights(trainer):
    return {name: value.clone() for name, value in trainer.model.state_dict().items()}


def read_records(run_dir) -> tuple:
    """What a run wrote about itself, without how long it took: its metrics, logged tokens and completions."""
    timing = ("step_time", "train_runtime", "train_samples_per_second", "train_steps_per_second")
    left_out = (*timing, "train_loss")  # transformers averages it over the steps since the start of the process
    metrics = [
        {name: value for name, value in entry.items() if name not in left_out}
        for entry in read_metrics(Path(run_dir) / "metrics.jsonl")
    ]
    return metrics, *(read_token_log(run_dir, name).to_pylist() for name in ("tokens", "completions"))


def build_byte_tokenizer(template: str | None = None, special: tuple[str, ...] = ()) -> PreTrainedTokenizerFast:
    """A tokenizer of single bytes, which reads everything, with one of TRL's copies of published chat templates."""
    vocabulary = {byte: index for index, byte in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<bos>", eos_token="<eos>", pad_token="<pad>"
    )
    tokenizer.add_special_tokens({"additional_special_tokens": list(special)})
    if template is not None:
        tokenizer.chat_template = (CHAT_TEMPLATES / f"{template}.jinja").read_text()
    return tokenizer


def build_byte_model(tokenizer: PreTrainedTokenizerFast) -> Qwen3ForCausalLM:
    """An untrained model of its tokens."""
    torch.manual_seed(0)
    return Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=len(tokenizer),
            hidden_size=16,
            intermediate_size=16,
            num_hidden_layers=1,
            num_attention_heads=1,
            num_key_value_heads=1,
            head_dim=16,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
        )
    )
