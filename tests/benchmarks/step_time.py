"""
Step time and peak memory of STAPOTrainer beside GRPOTrainer, and the time of the mask alone.

    python tests/benchmarks/step_time.py

Every measurement of a trainer is a process of its own, so that the peaks of memory do not mix; the two trainers take
turns. The policy is a Qwen3 of random weights, rewards are random, and generation is part of the step. It runs on the
GPU where there is one.
"""

import argparse
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time


os.environ.setdefault("HF_HUB_OFFLINE", "1")
ROWS, STEPS, WARMUP = 32, 8, 2


def measure(trainer_name: str, num_micro: int) -> dict[str, float]:
    """Median seconds of a step, and the peak of memory in MiB, of one trainer."""
    import torch
    from datasets import Dataset
    from transformers import Qwen3Config, Qwen3ForCausalLM, TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    from stapo_trl import STAPOConfig, STAPOTrainer
    from stapo_trl.warm_start import build_tokenizer

    class Clock(TrainerCallback):
        times = [time.perf_counter()]

        def on_step_end(self, *args, **kwargs):
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            self.times.append(time.perf_counter())

    def random_reward(completions, **kwargs):
        rng = random.Random(len(Clock.times))
        return [rng.choice([-1.0, 1.0]) for _ in completions]

    trainer_class, config_class = {
        "GRPOTrainer": (GRPOTrainer, GRPOConfig),
        "STAPOTrainer": (STAPOTrainer, STAPOConfig),
    }[trainer_name]
    tokenizer = build_tokenizer()
    model = Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=8192,
            hidden_size=256,
            intermediate_size=768,
            num_hidden_layers=6,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=64,
            pad_token_id=0,
            eos_token_id=1,
            bos_token_id=None,
            dtype="float32",
        )
    )
    args = config_class(
        output_dir=tempfile.mkdtemp(),
        per_device_train_batch_size=ROWS // num_micro,
        gradient_accumulation_steps=num_micro,
        num_generations=8,
        max_completion_length=96,
        generation_kwargs={"min_new_tokens": 96},
        max_steps=STEPS,
        save_strategy="no",
        report_to="none",
        use_cpu=not torch.cuda.is_available(),
        bf16=torch.cuda.is_available(),
        gradient_checkpointing=False,
        disable_tqdm=True,
        logging_steps=STEPS,
    )
    trainer = trainer_class(
        model=model,
        reward_funcs=random_reward,
        args=args,
        train_dataset=Dataset.from_dict({"prompt": [f"{i}+{i}-{i}=?" for i in range(100)]}),
        processing_class=tokenizer,
        callbacks=[Clock()],
    )
    trainer.train()
    steps = [after - before for before, after in zip(Clock.times[WARMUP:], Clock.times[WARMUP + 1 :], strict=False)]
    if torch.cuda.is_available():
        peak = torch.cuda.max_memory_allocated() / 2**20
    else:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
    return {"seconds": statistics.median(steps), "mebibytes": peak}


def measure_apart(trainer_name: str, num_micro: int) -> dict[str, float]:
    command = [sys.executable, __file__, "--trainer", trainer_name, "--num_micro", str(num_micro)]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return json.loads(output.splitlines()[-1])


def compare(num_micro: int, repeats: int) -> None:
    """Print both trainers and their ratios."""
    results = {"GRPOTrainer": [], "STAPOTrainer": []}
    for _ in range(repeats):
        for name in results:
            results[name].append(measure_apart(name, num_micro))
    best = {
        name: {key: statistics.median(run[key] for run in runs) for key in runs[0]} for name, runs in results.items()
    }
    for name, numbers in best.items():
        print(f"{num_micro:>13} {name:<13} {1000 * numbers['seconds']:>9.0f} {numbers['mebibytes']:>9.0f}")
    ratio = {key: best["STAPOTrainer"][key] / best["GRPOTrainer"][key] for key in best["GRPOTrainer"]}
    print(f"{num_micro:>13} {'ratio':<13} {ratio['seconds']:>9.3f} {ratio['mebibytes']:>9.3f}", flush=True)


def time_mask() -> None:
    """Print the time of the whole mask for growing numbers of tokens, one in a thousand of them a candidate."""
    import torch

    from stapo_trl.s2t import compute_keep_mask

    device = "cuda" if torch.cuda.is_available() else "cpu"
    print(f"\n{'tokens':>13} {'population':<13} {'ms':>9}")
    for count in (10**5, 10**6, 10**7, 3 * 10**7):
        for population in ("candidates", "all"):
            logps = -torch.rand(count // 1000, 1000, device=device) * 6.2146 * 1.002
            entropies = torch.rand(count // 1000, 1000, device=device)
            advantages = torch.randn(count // 1000, device=device)
            mask = torch.ones(count // 1000, 1000, device=device)
            seconds = []
            for _ in range(3):
                start = time.perf_counter()
                compute_keep_mask(logps, entropies, advantages, mask, entropy_population=population)
                if device == "cuda":
                    torch.cuda.synchronize()
                seconds.append(time.perf_counter() - start)
            print(f"{count:>13,} {population:<13} {1000 * min(seconds):>9.1f}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--trainer")
    parser.add_argument("--num_micro", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    if arguments.trainer:
        print(json.dumps(measure(arguments.trainer, arguments.num_micro)))
    else:
        print(f"{'micro-batches':>13} {'trainer':<13} {'ms/step':>9} {'peak MiB':>9}")
        for num_micro in (1, 4):
            compare(num_micro, arguments.repeats)
        time_mask()
