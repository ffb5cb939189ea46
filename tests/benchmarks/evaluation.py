"""
Tokens per second of the evaluation's decoding beside `generate`, on the embedded model with answers of skewed lengths.

    python tests/benchmarks/evaluation.py

One problem in eight has twelve terms, the others two: most answers are short, a few are long. All sides decode greedily,
so that their answers can be compared; ours decodes once more at temperature 1 and top-p 0.9, and with another batch size.
"""

import os


os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import time  # noqa: E402

import torch  # noqa: E402
from rich.console import Console  # noqa: E402
from rich.table import Table  # noqa: E402
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig  # noqa: E402
from transformers.utils import logging  # noqa: E402

from stapo_trl.arithmetic.problems import load_arithmetic
from stapo_trl.arithmetic.warm_start import WarmStart, get_warm_start
from stapo_trl.evaluation import SamplingSettings, TransformersSampler
from stapo_trl.evaluation.samples import Problem, Request


PROBLEMS, LONG_EVERY, MAX_NEW_TOKENS, BATCH = 256, 8, 120, 64


def main() -> None:
    torch.set_num_threads(1)
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    folder = get_warm_start(WarmStart())
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    short = load_arithmetic("train", PROBLEMS, num_terms=2)["prompt"]
    long = load_arithmetic("test", PROBLEMS, num_terms=12)["prompt"]
    prompts = [long[i] if i % LONG_EVERY == 0 else short[i] for i in range(PROBLEMS)]
    config = GenerationConfig(max_new_tokens=MAX_NEW_TOKENS, do_sample=False, eos_token_id=1, pad_token_id=0)

    def generate(batch_size: int) -> list[list[int]]:
        answers = []
        for start in range(0, len(prompts), batch_size):
            batch = tokenizer(prompts[start : start + batch_size], return_tensors="pt", padding=True)
            ids = model.generate(
                input_ids=batch["input_ids"], attention_mask=batch["attention_mask"], generation_config=config
            )
            rows = ids[:, batch["input_ids"].size(1) :].tolist()
            answers += [row[: row.index(1) + 1] if 1 in row else row for row in rows]
        return answers

    def ours(settings: SamplingSettings, batch_size: int = BATCH) -> list[list[int]]:
        requests = [Request(Problem("skewed", str(i), prompt, ""), 0) for i, prompt in enumerate(prompts)]
        sampler = TransformersSampler(model, tokenizer, batch_size=batch_size)
        samples = {int(s.problem_id): s for part in sampler.sample(requests, settings) for s in part}
        ends = {i: [] if sample.truncated else [1] for i, sample in samples.items()}
        return [tokenizer(samples[i].text)["input_ids"] + ends[i] for i in range(len(prompts))]

    greedy, sampled = SamplingSettings(0.0, 1.0, MAX_NEW_TOKENS), SamplingSettings(1.0, 0.9, MAX_NEW_TOKENS)
    sides = {
        "generate, one problem at a time": lambda: generate(1),
        f"generate, batches of {BATCH}": lambda: generate(BATCH),
        f"stapo_trl, batch of {BATCH}": lambda: ours(greedy),
        "stapo_trl, temperature 1, top-p 0.9": lambda: ours(sampled),
        "stapo_trl, the same, batch of 16": lambda: ours(sampled, 16),
    }
    generate(1)  # what is slow the first time only
    table = Table()
    for column in ("", "tokens", "seconds", "tokens/s", "ratio", "equal answers"):
        table.add_column(column, justify="left" if not column else "right")
    speeds, answers = [], []
    for name, side in sides.items():
        begin = time.perf_counter()
        answers.append(side())
        seconds = time.perf_counter() - begin
        tokens = sum(map(len, answers[-1]))
        speeds.append(tokens / seconds)
        reference = answers[0] if len(answers) <= 3 else answers[3]
        equal = sum(ours == theirs for ours, theirs in zip(answers[-1], reference, strict=True))
        table.add_row(
            name,
            str(tokens),
            f"{seconds:.2f}",
            f"{speeds[-1]:.0f}",
            f"{speeds[-1] / speeds[0]:.1f}",
            f"{equal}/{len(prompts)}",
        )
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
