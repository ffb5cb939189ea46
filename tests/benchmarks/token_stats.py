"""
What the token log and the statistics by quadrant cost: steps with and without them, in one run.

    python tests/benchmarks/token_stats.py

One STAPOTrainer takes statistics in every second step, so that both kinds of step see the same machine. Generation is
part of a step, as in training. The threshold of the probability is high, so that a share of the tokens are candidates.
"""

import os
import random
import statistics
import tempfile
import time


os.environ.setdefault("HF_HUB_OFFLINE", "1")
STEPS = 25


def main() -> None:
    import torch
    from datasets import Dataset
    from transformers import Qwen3Config, Qwen3ForCausalLM, TrainerCallback

    from stapo_trl import STAPOConfig, STAPOTrainer
    from stapo_trl.arithmetic.warm_start import build_tokenizer
    from stapo_trl.observe.recorder import StepRecord

    class Clock(TrainerCallback):
        times = [time.perf_counter()]

        def on_step_end(self, *args, **kwargs):
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            self.times.append(time.perf_counter())

    def random_reward(completions, **kwargs):
        rng = random.Random(len(Clock.times))
        return [rng.choice([-1.0, 1.0]) for _ in completions]

    config = Qwen3Config(
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
    args = STAPOConfig(
        output_dir=tempfile.mkdtemp(),
        per_device_train_batch_size=8,
        gradient_accumulation_steps=4,
        num_generations=8,
        max_completion_length=96,
        generation_kwargs={"min_new_tokens": 96},
        max_steps=STEPS,
        token_stats_steps=2,
        s2t_prob_threshold=4e-5,
        save_strategy="no",
        report_to="none",
        use_cpu=not torch.cuda.is_available(),
        bf16=torch.cuda.is_available(),
        gradient_checkpointing=False,
        disable_tqdm=True,
        logging_steps=STEPS,
    )
    trainer = STAPOTrainer(
        model=Qwen3ForCausalLM(config),
        reward_funcs=random_reward,
        args=args,
        train_dataset=Dataset.from_dict({"prompt": [f"{i}+{i}-{i}=?" for i in range(100)]}),
        processing_class=build_tokenizer(),
        callbacks=[Clock()],
    )
    seconds, rows, num_rows = [], StepRecord.rows, 0

    def timed_rows(record):
        nonlocal num_rows
        start = time.perf_counter()
        result = rows(record)
        seconds.append(time.perf_counter() - start)
        num_rows += len(result[0])
        return result

    StepRecord.rows = timed_rows
    trainer.train()
    steps = [after - before for before, after in zip(Clock.times, Clock.times[1:], strict=False)][1:]
    seconds = seconds[1:]
    # Step 1 takes statistics and is left out, as it also warms up; then every second one does
    plain, full = statistics.median(steps[0::2]), statistics.median(steps[1::2])
    log = statistics.median(seconds[0::2])
    print(f"{torch.get_num_threads()} threads, {torch.cuda.get_device_name() if torch.cuda.is_available() else 'CPU'}")
    print(f"step without statistics {1000 * plain:8.0f} ms, of which the log {1000 * log:.1f} ms")
    print(f"step with statistics    {1000 * full:8.0f} ms, ratio {full / plain:.3f}")
    print(f"{num_rows / STEPS:.0f} logged tokens a step")
    every = STAPOConfig.token_stats_steps
    overhead = (log + (full - plain) / every) / (plain - log)
    print(f"overhead at the default, statistics every {every} steps: {100 * overhead:.2f} % of a step")


if __name__ == "__main__":
    main()
