r"""
The policy that the embedded recipe starts from: a small Qwen3, taught by worked answers with slips.

It needs no download: the model is built from a configuration, its tokenizer from the alphabet of the task, and a few
hundred supervised steps make it right about half of the time. The result is cached by its settings.
"""

import hashlib
import json
import os
import random
import shutil
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

from datasets import Dataset
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM, set_seed
from trl import SFTConfig, SFTTrainer

from .data.arithmetic import load_arithmetic, write_answer


VOCABULARY = ["<pad>", "<eos>", *"0123456789+-=?;$ ", "\\boxed{", "}", "so", "then", "wait", "let"]


@dataclass
class WarmStart:
    """
    Settings of the supervised steps before reinforcement learning.

    Args:
        num_steps (`int`, defaults to `400`):
            Optimizer steps.
        batch_size (`int`, defaults to `128`):
            Worked answers in one step.
        learning_rate (`float`, defaults to `3e-3`):
            Peak learning rate.
        slip_rate (`float`, defaults to `0.05`):
            Chance of a slip in each step of a worked answer, see [`write_answer`].
        num_terms (`int`, defaults to `5`):
            Numbers in a problem.
        seed (`int`, defaults to `0`):
            Seed of the weights, the problems and the slips.
    """

    num_steps: int = 400
    batch_size: int = 128
    learning_rate: float = 3e-3
    slip_rate: float = 0.05
    num_terms: int = 5
    seed: int = 0


def build_tokenizer() -> PreTrainedTokenizerFast:
    """A tokenizer with one token for each digit, sign and word of the task."""
    tokenizer = Tokenizer(
        models.WordLevel({token: index for index, token in enumerate(VOCABULARY)}, unk_token="<pad>")
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"\\boxed\{|[a-z]+|."), behavior="isolated")
    tokenizer.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<eos>", padding_side="left"
    )


def build_model(seed: int = 0) -> Qwen3ForCausalLM:
    """A Qwen3 of about 0.1 M parameters with random weights."""
    set_seed(seed)
    config = Qwen3Config(
        vocab_size=len(VOCABULARY),
        hidden_size=64,
        intermediate_size=192,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        max_position_embeddings=256,
        tie_word_embeddings=True,
        initializer_range=float(os.environ.get("INIT", "0.02")),
        pad_token_id=VOCABULARY.index("<pad>"),
        eos_token_id=VOCABULARY.index("<eos>"),
        bos_token_id=None,
        dtype="float32",
    )
    return Qwen3ForCausalLM(config)


def get_warm_start(settings: WarmStart, callbacks: list | None = None) -> Path:
    """
    Folder of the warm start with these settings, trained now if it is not cached.

    Args:
        settings ([`WarmStart`]):
            Settings of the supervised steps.
        callbacks (`list`, *optional*):
            Callbacks of the supervised trainer, for example a progress bar.

    Returns:
        `Path`: a folder that `from_pretrained` loads, in `$STAPO_CACHE` (by default `~/.cache/stapo_trl`).
    """
    cache = Path(os.environ.get("STAPO_CACHE", Path.home() / ".cache" / "stapo_trl"))
    code = Path(__file__).read_text() + (Path(__file__).parent / "data" / "arithmetic.py").read_text()
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
    """
    Teach a new model worked answers, and save it with its tokenizer.

    Args:
        settings ([`WarmStart`]):
            Settings.
        output_dir (`str`):
            Where to save.
        callbacks (`list`, *optional*):
            Callbacks of the supervised trainer.
    """
    tokenizer, model = build_tokenizer(), build_model(settings.seed)
    rng = random.Random(settings.seed)
    problems = load_arithmetic("train", settings.num_steps * settings.batch_size, settings.num_terms, settings.seed)
    rows = [
        {"prompt": prompt, "completion": write_answer(prompt, rng, settings.slip_rate)}
        for prompt in problems["prompt"]
    ]
    trainer = SFTTrainer(
        model=model,
        args=SFTConfig(
            output_dir=output_dir,
            max_steps=settings.num_steps,
            per_device_train_batch_size=settings.batch_size,
            learning_rate=settings.learning_rate,
            lr_scheduler_type="cosine",
            warmup_steps=20,
            seed=settings.seed,
            save_strategy="no",
            logging_steps=20,
            report_to="none",
            bf16=False,
            gradient_checkpointing=False,
            disable_tqdm=True,
        ),
        train_dataset=Dataset.from_list(rows),
        processing_class=tokenizer,
        callbacks=callbacks,
    )
    trainer.train()
    trainer.save_model(output_dir)
