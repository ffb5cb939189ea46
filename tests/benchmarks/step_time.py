"""
Step time, tokens per second and peak memory of STAPOTrainer beside GRPOTrainer, and the time of the mask alone.

    python tests/benchmarks/step_time.py

Every measurement of a trainer is a process of its own, so that the peaks of memory do not mix; the two trainers take
turns. The policy is a Qwen3 of random weights, whole and with LoRA, and rewards are random. On a GPU the policy has the
size of Qwen3-1.7B, in bf16 with gradient checkpointing, and the completions are random tokens by the thousands that
nobody generated: generation costs both trainers the same, so the ratios of whole steps lie nearer to 1 (--generation
measures them). A short loan of one is enough for

    python tests/benchmarks/step_time.py --lengths 1024 --micro_batches 1 16
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
WARMUP = 2  # steps that are not counted
SMALL = {"vocab_size": 8192, "hidden_size": 256, "intermediate_size": 768, "num_hidden_layers": 4}
SMALL |= {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64}
QWEN3_1_7B = {"vocab_size": 151936, "hidden_size": 2048, "intermediate_size": 6144, "num_hidden_layers": 28}
QWEN3_1_7B |= {"num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128, "tie_word_embeddings": True}


def measure(
    trainer_name: str, num_micro: int, length: int, use_lora: bool, generates: bool, rows: int, steps: int
) -> dict[str, float]:
    """Median seconds of a step, completion tokens per second, and the peak of memory in MiB, of one trainer."""
    import torch
    from datasets import Dataset
    from peft import LoraConfig
    from transformers import Qwen3Config, Qwen3ForCausalLM, TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    from stapo_trl import STAPOConfig, STAPOTrainer
    from stapo_trl.arithmetic.warm_start import build_tokenizer

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
    on_gpu = torch.cuda.is_available()
    shape = QWEN3_1_7B if on_gpu else SMALL
    dtype = "bfloat16" if on_gpu else "float32"
    with torch.device("cuda" if on_gpu else "cpu"):
        model = Qwen3ForCausalLM(Qwen3Config(**shape, pad_token_id=0, eos_token_id=1, bos_token_id=None, dtype=dtype))
    args = config_class(
        output_dir=tempfile.mkdtemp(),
        per_device_train_batch_size=rows // num_micro,
        gradient_accumulation_steps=num_micro,
        num_generations=8,
        max_completion_length=length,
        generation_kwargs={"min_new_tokens": length},
        max_steps=steps,
        save_strategy="no",
        report_to="none",
        use_cpu=not on_gpu,
        bf16=on_gpu,
        gradient_checkpointing=on_gpu,
        disable_tqdm=True,
        logging_steps=steps,
    )
    trainer = trainer_class(
        model=model,
        reward_funcs=random_reward,
        args=args,
        train_dataset=Dataset.from_dict({"prompt": [f"{i}+{i}-{i}=?" for i in range(100)]}),
        processing_class=tokenizer,
        callbacks=[Clock()],
        peft_config=LoraConfig(r=16, target_modules=["q_proj", "v_proj"]) if use_lora else None,
    )
    if not generates:
        generator = torch.Generator().manual_seed(0)

        def draw(prompt_ids, *args, **kwargs):
            return torch.randint(2, shape["vocab_size"], (len(prompt_ids), length), generator=generator).tolist(), None

        trainer._generate_single_turn = draw
    trainer.train()
    times = [after - before for before, after in zip(Clock.times[WARMUP:], Clock.times[WARMUP + 1 :], strict=False)]
    seconds = statistics.median(times)
    if on_gpu:
        peak = torch.cuda.max_memory_allocated() / 2**20
    else:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
    return {"seconds": seconds, "tokens/s": rows * length / seconds, "mebibytes": peak}


def measure_apart(*setting) -> dict[str, float]:
    command = [sys.executable, __file__, "--measure", json.dumps(setting)]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return json.loads(output.splitlines()[-1])


def compare(repeats: int, num_micro: int, length: int, use_lora: bool, *setting) -> None:
    """Print both trainers and their ratios."""
    results = {"GRPOTrainer": [], "STAPOTrainer": []}
    for _ in range(repeats):
        for name in results:
            results[name].append(measure_apart(name, num_micro, length, use_lora, *setting))
    median = {
        name: {key: statistics.median(run[key] for run in runs) for key in runs[0]} for name, runs in results.items()
    }
    label = f"{num_micro:>13} {length:>6} {'LoRA' if use_lora else 'full':<5}"
    for name, x in median.items():
        print(f"{label} {name:<13} {1000 * x['seconds']:>9.0f} {x['tokens/s']:>9.0f} {x['mebibytes']:>9.0f}")
    ratio = {key: median["STAPOTrainer"][key] / median["GRPOTrainer"][key] for key in median["GRPOTrainer"]}
    print(
        f"{label} {'ratio':<13} {ratio['seconds']:>9.3f} {ratio['tokens/s']:>9.3f} {ratio['mebibytes']:>9.3f}",
        flush=True,
    )


def time_rule() -> None:
    """Print the time of the rule for growing numbers of tokens, one in a thousand of them a candidate."""
    import torch

    from stapo_trl.rules.s2t import S2T
    from stapo_trl.rules.tokens import gather_one
    from stapo_trl.trainer.optimizer_step import flatten, lay_out

    device = "cuda" if torch.cuda.is_available() else "cpu"
    print(f"\n{'tokens':>13} {'population':<13} {'ms':>9}")
    for count in (10**5, 10**6, 10**7, 3 * 10**7):
        for population in ("candidates", "all"):
            logps = -torch.rand(count // 1000, 1000, device=device) * 6.2146 * 1.002
            entropies = torch.rand(count // 1000, 1000, device=device)
            advantages = torch.randn(count // 1000, device=device)
            mask = torch.ones(count // 1000, 1000, device=device)
            ids = torch.zeros(count // 1000, 1000, device=device, dtype=torch.long)
            inputs = [{"completion_mask": mask, "completion_ids": ids, "advantages": advantages}]
            rule = S2T(entropy_population=population)
            seconds = []
            for _ in range(3):
                start = time.perf_counter()
                tokens, places = flatten(inputs, [(logps, entropies)], 0, rule.positive_only)
                lay_out(tokens, rule(tokens, gather_one), inputs, places)
                if device == "cuda":
                    torch.cuda.synchronize()
                seconds.append(time.perf_counter() - start)
            print(f"{count:>13,} {population:<13} {1000 * min(seconds):>9.1f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=2, help="processes of each trainer in a comparison")
    parser.add_argument("--micro_batches", type=int, nargs="+", default=[1, 4, 16])
    parser.add_argument("--lengths", type=int, nargs="+", help="of completions; by default 64, on a GPU 1024 to 8192")
    parser.add_argument("--generation", action=argparse.BooleanOptionalAction, help="by default on a CPU only")
    parser.add_argument("--steps", type=int, default=6, help=f"of which {WARMUP} are not counted")
    parser.add_argument("--measure", type=json.loads, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        print(json.dumps(measure(*arguments.measure)))
        return

    import torch
    import trl

    on_gpu = torch.cuda.is_available()
    generates = arguments.generation if arguments.generation is not None else not on_gpu
    rows = 16 if on_gpu else 32
    device = torch.cuda.get_device_name() if on_gpu else f"{len(os.sched_getaffinity(0))} CPU cores"
    print(
        f"{device}, torch {torch.__version__}, trl {trl.__version__}: {rows} completions a step, generation "
        f"{'included' if generates else 'left out'}"
    )
    print(
        f"{'micro-batches':>13} {'length':>6} {'':<5} {'trainer':<13} {'ms/step':>9} {'tokens/s':>9} {'peak MiB':>9}"
    )
    for length in arguments.lengths or ([1024, 4096, 8192] if on_gpu else [64]):
        for use_lora in (False, True):
            for num_micro in arguments.micro_batches:
                compare(arguments.repeats, num_micro, length, use_lora, generates, rows, arguments.steps)
    time_rule()


if __name__ == "__main__":
    main()
