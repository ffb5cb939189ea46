"""
The policy that the embedded recipe starts from: a small Qwen3, taught by worked answers with slips.

It needs no download: the model is built from a configuration, its tokenizer from the alphabet of the task, and a few
hundred supervised optimizer steps make it right about half of the time. The result is cached by its settings.
"""

import hashlib
import json
import os
import random
import re
import shutil
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

from datasets import Dataset
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    PreTrainedTokenizerFast,
    PrinterCallback,
    Qwen3Config,
    Qwen3ForCausalLM,
    TrainerCallback,
    set_seed,
)
from trl import SFTConfig, SFTTrainer

from .heldout import measure_accuracy
from .problems import load_arithmetic, write_answer


VOCABULARY = ["<pad>", "<eos>", *"0123456789+-=?;$ ", "\\boxed{", "}", "so", "then", "wait", "let"]
TOKEN = r"\\boxed\{|[a-z]+|."


@dataclass
class WarmStart:
    """
    Settings of the supervised optimizer steps (of 16 worked answers each) before reinforcement learning.

    Args:
        target_accuracy (`float`, defaults to `0.45`):
            Greedy accuracy on validation problems at which they stop.
        max_steps (`int`, defaults to `2000`):
            The most optimizer steps.
        slip_rate (`float`, defaults to `0.03`):
            Chance of a slip in each line of a worked answer, see [`write_answer`].
        noise_rate (`float`, defaults to `0.0`):
            Chance of a random token after each token of a worked answer, in [0, 1).
        num_terms (`int`, defaults to `5`):
            Numbers in a problem.
        hidden_size (`int`, defaults to `64`), num_layers (`int`, defaults to `2`):
            Size of the model: 0.1 M parameters; 512 and 8 make 25 M.
        seed (`int`, defaults to `0`):
            Seed of the weights, the problems and the slips.
    """

    target_accuracy: float = 0.45
    max_steps: int = 2000
    slip_rate: float = 0.03
    noise_rate: float = 0.0
    num_terms: int = 5
    hidden_size: int = 64
    num_layers: int = 2
    seed: int = 0

    @property
    def max_new_tokens(self) -> int:
        """Room for an answer of at most `9 * (num_terms - 1) + 4` tokens with its slips."""
        return 12 * self.num_terms - 4


class StopAtAccuracy(TrainerCallback):
    """Ends the supervised training once the policy is right often enough to be rewarded, with much left to learn."""

    def __init__(
        self, settings: WarmStart, problems: Dataset, tokenizer: PreTrainedTokenizerFast, every_steps: int = 50
    ):
        self.settings, self.problems, self.tokenizer, self.every_steps = settings, problems, tokenizer, every_steps

    def on_step_end(self, args, state, control, model=None, **kwargs):
        if state.global_step % self.every_steps == 0:
            accuracy = measure_accuracy(model, self.tokenizer, self.problems, self.settings.max_new_tokens)
            control.should_training_stop = accuracy.mean >= self.settings.target_accuracy


def build_tokenizer() -> PreTrainedTokenizerFast:
    """A tokenizer with one token for each digit, sign and word of the task."""
    tokenizer = Tokenizer(
        models.WordLevel({token: index for index, token in enumerate(VOCABULARY)}, unk_token="<pad>")
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(TOKEN), behavior="isolated")
    tokenizer.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<eos>", padding_side="left"
    )


def build_model(seed: int = 0, hidden_size: int = 64, num_layers: int = 2) -> Qwen3ForCausalLM:
    """A Qwen3 with random weights, by default of about 0.1 M parameters."""
    set_seed(seed)
    config = Qwen3Config(
        vocab_size=len(VOCABULARY),
        hidden_size=hidden_size,
        intermediate_size=3 * hidden_size,
        num_hidden_layers=num_layers,
        num_attention_heads=hidden_size // 16,
        num_key_value_heads=hidden_size // 32,
        head_dim=16,
        max_position_embeddings=256,
        tie_word_embeddings=True,
        pad_token_id=VOCABULARY.index("<pad>"),
        eos_token_id=VOCABULARY.index("<eos>"),
        bos_token_id=None,
        dtype="float32",
    )
    return Qwen3ForCausalLM(config)


def add_noise(text: str, rng: random.Random, noise_rate: float) -> str:
    """A worked answer with random tokens in between, so that a policy learns to sample them now and then anywhere."""
    if noise_rate == 0:
        return text
    tokens = re.findall(TOKEN, text)
    return "".join(token + (rng.choice(VOCABULARY[2:]) if rng.random() < noise_rate else "") for token in tokens)


def get_warm_start(settings: WarmStart, callbacks: list | None = None) -> Path:
    """
    Folder of the warm start, for `from_pretrained`; it is trained if `$STAPO_CACHE` (`~/.cache/stapo_trl`) lacks it.

    `callbacks` are of the supervised trainer, such as a progress bar.
    """
    cache = Path(os.environ.get("STAPO_CACHE", Path.home() / ".cache" / "stapo_trl"))
    code = Path(__file__).read_text() + Path(__file__).with_name("problems.py").read_text()
    key = hashlib.sha256((json.dumps(asdict(settings)) + code).encode()).hexdigest()[:12]
    folder = cache / f"arithmetic-{key}"
    if not folder.exists():
        cache.mkdir(parents=True, exist_ok=True)
        unfinished = tempfile.mkdtemp(dir=cache)
        try:
            train_warm_start(settings, unfinished, callbacks)
            os.replace(unfinished, folder)  # atomic: a killed run leaves no half of a model behind
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
    return folder


def train_warm_start(settings: WarmStart, output_dir: str, callbacks: list | None = None) -> None:
    """Teach a new model worked answers, and save it with its tokenizer."""
    tokenizer, model = build_tokenizer(), build_model(settings.seed, settings.hidden_size, settings.num_layers)
    rng = random.Random(settings.seed)
    problems = load_arithmetic("train", 3000, settings.num_terms, settings.seed)
    rows = [
        {
            "prompt": prompt,
            "completion": add_noise(write_answer(prompt, rng, settings.slip_rate), rng, settings.noise_rate),
        }
        for prompt in problems["prompt"]
    ]
    validation = load_arithmetic("validation", 200, settings.num_terms, settings.seed)
    trainer = SFTTrainer(
        model=model,
        args=SFTConfig(
            output_dir=output_dir,
            max_steps=settings.max_steps,
            per_device_train_batch_size=16,
            learning_rate=3e-3,
            adam_beta2=0.98,
            lr_scheduler_type="constant_with_warmup",
            warmup_steps=20,
            seed=settings.seed,
            save_strategy="no",
            logging_steps=25,
            report_to="none",
            bf16=False,
            gradient_checkpointing=False,
            disable_tqdm=True,
        ),
        train_dataset=Dataset.from_list(rows),
        processing_class=tokenizer,
        callbacks=[StopAtAccuracy(settings, validation, tokenizer), *(callbacks or [])],
    )
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    trainer.save_model(output_dir)
