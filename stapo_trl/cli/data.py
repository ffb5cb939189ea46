"""`stapo data check`: what a data set holds, before a run is spent on it."""

import argparse
import json
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
from datasets import Dataset
from transformers import AutoTokenizer

from ..data import BENCHMARKS, NAMES, find_loader, load_benchmark, load_local
from ..data.prompt import PromptFormat
from ..data.reading.rows import question
from ..data.sets.overlap import count_overlap
from ..evaluation.sampling.policy import check_chat_template, read_prompt
from ..evaluation.sampling.settings import CHAT_TEMPLATE_KWARGS


def main(argv: Sequence[str]) -> None:
    """Print rows, copies, unusable golds, lengths, overlap with the evaluation sets, and a sample."""
    parser = argparse.ArgumentParser("stapo data", description="Look at data sets.")
    check = parser.add_subparsers(dest="command", required=True).add_parser(
        "check", help="rows, copies, unusable golds, lengths, overlap with the evaluation sets, and a sample"
    )
    check.add_argument(
        "name", metavar="NAME_OR_PATH", help=f"{', '.join((*NAMES, *BENCHMARKS))}, or a local file or folder"
    )
    check.add_argument("--path", help="local copy of a named set")
    check.add_argument("--config", help="configuration")
    check.add_argument("--split", help="split, if it has several")
    check.add_argument("--problem_column", help="column of the problem, where its name is not a usual one")
    check.add_argument("--solution_column", help="column of the gold answer, where its name is not a usual one")
    check.add_argument("--prompt_format", default="chat", choices=PromptFormat.__args__)
    check.add_argument("--tokenizer", help="name or path of a tokenizer, to measure the prompts")
    check.add_argument("--chat_template_kwargs", **CHAT_TEMPLATE_KWARGS)
    args = parser.parse_args(argv)
    try:
        problems = _load(args)
        print(problems.info.description)
        if args.tokenizer:
            print(describe_lengths(problems, args.tokenizer, args.chat_template_kwargs))
    except (ValueError, OSError) as error:
        sys.exit(str(error))
    overlap = count_overlap(question(prompt)[1] for prompt in problems["prompt"])
    print(f"in evaluation sets: {', '.join(f'{name} {count}' for name, count in overlap.items())}")
    print(json.dumps(problems[0], indent=2, ensure_ascii=False))


def _load(args: argparse.Namespace) -> Dataset:
    if args.name in BENCHMARKS:
        return load_benchmark(args.name, path=args.path, split=args.split, prompt_format=args.prompt_format)
    is_local = Path(args.name).exists() and args.name not in ("", *NAMES)
    if is_local and args.path:
        raise ValueError(f"--path goes with a named set, but {args.name!r} is a file or folder itself.")
    load = partial(load_local, args.name) if is_local else find_loader(args.name)
    if load is None:
        raise ValueError(f"{args.name!r} is neither a file or folder nor one of {', '.join((*NAMES, *BENCHMARKS))}.")
    options = {"path": args.path, "config": args.config, "split": args.split}
    columns = {"problem": args.problem_column, "solution": args.solution_column}
    return load(
        **{name: value for name, value in options.items() if value},
        columns={part: column for part, column in columns.items() if column},
        prompt_format=args.prompt_format,
        unusable="drop",
    )


def describe_lengths(problems: Dataset, tokenizer_name: str, chat_template_kwargs: dict | None = None) -> str:
    """Lengths of the prompts in tokens, as a trainer sees them; `ValueError` if the chat template refuses them."""
    tokenizer = AutoTokenizer.from_pretrained(tokenizer_name)
    check_chat_template(tokenizer, chat_template_kwargs)
    if not isinstance(problems[0]["prompt"], str) and tokenizer.chat_template is None:
        raise ValueError(f"{tokenizer_name} has no chat template: use the prompt format 'plain'.")

    lengths = problems.map(
        lambda prompt: {"length": len(read_prompt(tokenizer, prompt, chat_template_kwargs))},
        input_columns="prompt",
        remove_columns=problems.column_names,
        desc="Tokens",
    )["length"]
    median, high, longest = np.percentile(np.array(lengths), (50, 95, 100)).astype(int)
    return f"tokens of a prompt: median {median:,}, 95 % up to {high:,}, longest {longest:,}"
