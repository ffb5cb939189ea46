"""`stapo evaluate`."""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

from rich.console import Console
from transformers.utils import logging as transformers_logging

from ..data import BENCHMARKS
from ..evaluation.result import tables
from ..evaluation.run import evaluate
from ..evaluation.sampling.settings import (
    CHAT_TEMPLATE_KWARGS,
    PAPER_DECODINGS,
    PAPER_SAMPLES,
    PAPER_SAMPLES_OTHERWISE,
    SamplingSettings,
)
from ..evaluation.sampling.transformers_sampler import TransformersSampler
from ..evaluation.sampling.vllm_sampler import VLLMSampler
from ..observe.text import show_text
from ..rewards import LLMJudge


DEFAULTS = {"n": 4, "temperature": 0.7, "top_p": 0.9}


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "stapo evaluate",
        description="Evaluate a model, an adapter or a checkpoint. After an interruption, the same command resumes.",
    )
    add = parser.add_argument
    add("--model", required=True, help="folder or hub name of a model or an adapter")
    add("--revision", help="branch, tag or commit on the hub")
    add(
        "--benchmarks",
        help=f"comma-separated: {', '.join(BENCHMARKS)}, arithmetic (the embedded task), or local files",
    )
    add(
        "--protocol",
        choices=["paper"],
        help="the paper's two decodings and samples for each problem, by default on all six",
    )
    add("--n", type=int, help=f"samples for each problem (default {DEFAULTS['n']})")
    add("--temperature", type=float, help=f"0 is greedy (default {DEFAULTS['temperature']})")
    add("--top_p", type=float, help=f"default {DEFAULTS['top_p']}")
    add("--max_new_tokens", type=int, default=SamplingSettings.max_new_tokens, help="default %(default)s")
    add("--seed", type=int, default=0, help="default %(default)s")
    add("--size", type=int, help="only the first problems of each benchmark")
    add("--data_dir", help="folder with local copies of the benchmarks")
    add("--unusable", choices=["raise", "drop"], default="raise", help="rows of a benchmark that cannot be graded")
    add("--chat_template_kwargs", **CHAT_TEMPLATE_KWARGS)
    add("--judge", metavar="MODEL", help="model that judges what the rules rejected, once all samples are generated")
    add("--backend", choices=["vllm", "transformers"], help="default: vllm where it is installed")
    add("--batch_size", type=int, default=64, help="completions at a time with transformers (default %(default)s)")
    add("--output_dir", help="default evaluations/MODEL; samples that it holds are not generated again")
    return parser


def main(argv: Sequence[str]) -> None:
    """Evaluate, print a table for each decoding, and save the samples and the results."""
    parser = build_parser()
    args = parser.parse_args(argv)
    if args.protocol:
        for name in DEFAULTS:
            if getattr(args, name) is not None:
                parser.error(f"--protocol paper sets --{name}: leave out one of them.")
    elif not args.benchmarks:
        parser.error("give --benchmarks, or --protocol paper for all six.")
    names = [name.strip() for name in args.benchmarks.split(",")] if args.benchmarks else list(BENCHMARKS)
    model = args.model.rstrip("/")
    output_dir = Path(args.output_dir or Path("evaluations") / model.replace("/", "--").lstrip(".-"))
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    console = Console()
    try:
        if args.protocol:
            n = {name: PAPER_SAMPLES.get(name, PAPER_SAMPLES_OTHERWISE) for name in names}
            decodings = [
                replace(decoding, max_new_tokens=args.max_new_tokens, seed=args.seed) for decoding in PAPER_DECODINGS
            ]
        else:
            given = {name: getattr(args, name) for name in DEFAULTS if getattr(args, name) is not None}
            n, temperature, top_p = (DEFAULTS | given).values()
            decodings = [SamplingSettings(temperature, top_p, args.max_new_tokens, args.seed)]
        backend = args.backend or ("vllm" if find_spec("vllm") else "transformers")
        if backend == "vllm":
            sampler = VLLMSampler(args.model, args.revision, args.chat_template_kwargs)
        else:
            options = {"batch_size": args.batch_size, "chat_template_kwargs": args.chat_template_kwargs}
            sampler = TransformersSampler(args.model, revision=args.revision, **options)
        judges = [None, LLMJudge(args.judge, backend=backend)] if args.judge else [None]
        for judge in judges:  # a second round, so that the judge has the memory that the model has freed
            for settings in decodings:
                options = {"judge": judge, "data_dir": args.data_dir, "size": args.size}
                options |= {"unusable": args.unusable}
                show(console, evaluate(sampler, names, n, settings, output_dir, **options))
    except (ValueError, OSError) as error:
        sys.exit(f"stapo evaluate: {error}")
    except KeyboardInterrupt:
        sys.exit(f"Stopped; the same command resumes from the samples in {output_dir}.")
    console.print(f"Samples and results: {output_dir}", markup=False, soft_wrap=True)


def show(console: Console, result: dict) -> None:
    """Print the tables of a result, and its warnings."""
    console.print(
        show_text(f"{result['model']}, {result['decoding']}:"), markup=False, highlight=False, soft_wrap=True
    )
    for table in tables(result):
        console.print(table)
    for warning in result["warnings"]:
        console.print(f"Warning: {warning}", style="yellow", markup=False, soft_wrap=True)
