"""
`stapo score`: which tokens of saved completions are spurious under a model, without any training.

It writes a folder that `stapo report` opens: `metrics.jsonl` with one entry for each optimizer step, and `token_log/`.
Text is tokenised again, which can differ from the tokens that were sampled: a column `completion_ids` avoids that. Of a
completion with tool calls the last answer is scored, behind the turns before it.
"""

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import torch
from datasets import disable_progress_bars
from rich.console import Console
from rich.table import Table
from transformers import AutoModelForCausalLM, PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import logging as transformers_logging

from ...evaluation.sampling.policy import check_chat_template, load_tokenizer
from ...evaluation.sampling.settings import CHAT_TEMPLATE_KWARGS
from ...observe.files import write_atomically
from ...observe.token_log import TokenLog
from ...rules import RULES, make_rule
from ...rules.parameters import read_parameters
from ...rules.s2t import PAPER_PROB_THRESHOLD, PAPER_QUANTILE
from ...rules.tokens import Rule
from .completions import Completion, read_rows, tokenize_rows
from .scores import apply_rule, list_tokens, score_completions


EMBEDDED = "embedded/arithmetic"
WRITTEN = {"metrics.jsonl", "token_log", "report"}  # in the output folder


def main(argv: Sequence[str]) -> None:
    """Score a file of completions, write the folder, and print what each quadrant holds."""
    parser = argparse.ArgumentParser("stapo score", description=__doc__)
    parser.add_argument("--model", required=True, help=f"folder or hub name of the policy, or {EMBEDDED}")
    parser.add_argument("--data", required=True, help="completions: a JSON, JSONL, CSV or parquet file")
    parser.add_argument("--output_dir", default="stapo-score", help="folder to write (default: %(default)s)")
    for name in ("prompt", "completion", "reward"):
        parser.add_argument(f"--{name}_column", help=f"column with the {name}s, if it has an unusual name")
    parser.add_argument(
        "--prob_threshold", type=float, default=PAPER_PROB_THRESHOLD, help="tau_p (default: %(default)s)"
    )
    parser.add_argument("--entropy_quantile", type=float, default=PAPER_QUANTILE, help="q (default: %(default)s)")
    parser.add_argument(
        "--token_rule", choices=list(RULES), default="s2t", help="another method (default: STAPO's %(default)s)"
    )
    parser.add_argument("--token_rule_kwargs", metavar="JSON", help='its parameters, such as {"share": 0.1}')
    parser.add_argument("--temperature", type=float, default=1.0, help="of the sampling (default: %(default)s)")
    parser.add_argument("--mini_batch_size", type=int, help="completions that share a threshold (default: all)")
    parser.add_argument("--chat_template_kwargs", **CHAT_TEMPLATE_KWARGS)
    parser.add_argument("--batch_size", type=int, default=8, help="completions in a forward (default: %(default)s)")
    arguments = parser.parse_args(argv)
    disable_progress_bars()
    transformers_logging.disable_progress_bar()
    try:
        score_file(arguments)
    except (OSError, ValueError) as error:  # of the files, the model or the data
        parser.exit(1, f"{error}\n")


def score_file(arguments: argparse.Namespace) -> None:
    """The command, with its arguments parsed."""
    rule = read_rule(arguments)
    for name, valid, bound in (
        ("temperature", 0 < arguments.temperature < float("inf"), "above 0"),
        ("mini_batch_size", arguments.mini_batch_size is None or arguments.mini_batch_size > 0, "at least 1"),
        ("batch_size", arguments.batch_size > 0, "at least 1"),
    ):
        if not valid:
            raise ValueError(f"--{name} must be {bound}, got {getattr(arguments, name)}.")
    output_dir = Path(arguments.output_dir)
    if output_dir.exists() and {path.name for path in output_dir.iterdir()} - WRITTEN:
        raise ValueError(f"{output_dir} holds other files already: give an own folder by --output_dir.")
    rows = read_rows(arguments.data, arguments.prompt_column, arguments.completion_column, arguments.reward_column)
    model, tokenizer = load_model(arguments.model)
    check_chat_template(tokenizer, arguments.chat_template_kwargs)
    completions = tokenize_rows(rows, tokenizer, arguments.chat_template_kwargs)
    if not completions:
        raise ValueError(f"Every completion in {arguments.data} is empty.")
    if not any(completion.advantage for completion in completions):
        raise ValueError(
            "Every advantage is zero, so nothing would be reinforced: give several completions for each prompt with "
            "rewards that differ, or a column 'advantage'."
        )
    scores = score_completions(model, completions, arguments.temperature, arguments.batch_size)

    size = arguments.mini_batch_size or len(completions)
    metrics, tokens, steps = [], {}, []
    for start in range(0, len(completions), size):
        batch = slice(start, start + size)
        entry, found = apply_rule(completions[batch], scores[batch], rule, len(metrics) + 1)
        metrics.append(entry)
        steps += [entry["step"]] * len(completions[batch])
        for name, values in found.items():
            tokens.setdefault(name, []).extend(values)
    log = TokenLog(
        output_dir,
        metadata={
            **{name: str(value) for name, value in asdict(rule).items()},
            "rule": type(rule).__name__,
            "model": arguments.model,
            "chat_template_kwargs": json.dumps(arguments.chat_template_kwargs or {}),
        },
    )
    token_rows, completion_rows = list_tokens(
        model, tokenizer, completions, scores, tokens, steps, arguments.temperature
    )
    log.rows = {"tokens": token_rows, "completions": completion_rows}
    log.write()
    write_atomically(output_dir / "metrics.jsonl", "".join(json.dumps(entry) + "\n" for entry in metrics))
    show_summary(arguments, completions, tokens)


def read_rule(arguments: argparse.Namespace) -> Rule:
    """The token rule that the command names."""
    try:
        parameters = read_parameters(arguments.token_rule_kwargs)
    except ValueError as error:
        raise ValueError(f"--token_rule_kwargs {error}") from None
    given = (arguments.prob_threshold, arguments.entropy_quantile)
    if arguments.token_rule == "s2t":
        return make_rule("s2t", dict(zip(("prob_threshold", "entropy_quantile"), given, strict=True)) | parameters)
    if given != (PAPER_PROB_THRESHOLD, PAPER_QUANTILE):
        raise ValueError(
            f"--prob_threshold and --entropy_quantile belong to the rule 's2t' and would do nothing with "
            f"'{arguments.token_rule}': leave them out."
        )
    rule = make_rule(arguments.token_rule, parameters)
    if getattr(rule, "loss", None) is not None:
        raise ValueError(
            f"The rule '{arguments.token_rule}' compares the policy with the one that sampled, and saved completions are "
            "scored by one policy only."
        )
    return rule


def load_model(name: str) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """The model, on the GPU if there is one, and its tokenizer."""
    if name == EMBEDDED:
        from ...arithmetic.warm_start import WarmStart, get_warm_start

        name = get_warm_start(WarmStart())
    tokenizer = load_tokenizer(name)  # raises a sentence for a name that is no model
    model = AutoModelForCausalLM.from_pretrained(name, dtype="auto")
    return model.to("cuda" if torch.cuda.is_available() else "cpu"), tokenizer


def show_summary(arguments: argparse.Namespace, completions: list[Completion], tokens: dict) -> None:
    """Print the quadrants and what STAPO would silence."""
    from ...observe.report.load import load_runs
    from ...observe.report.quadrants import COLUMNS, average_quadrants, format_quadrants

    console = Console()
    quadrants = format_quadrants(average_quadrants(load_runs([Path(arguments.output_dir)])[0]))
    table = Table(title="Tokens with a positive advantage")
    for column in ("Quadrant", *COLUMNS.values()):
        first = column == "Quadrant"
        table.add_column(column, justify="left" if first else "right", no_wrap=first)
    for row in quadrants:
        table.add_row(*row)
    if quadrants:
        console.print(table)
    candidate, silenced = (torch.cat(tokens[name]) for name in ("candidate", "silenced"))
    total = len(candidate)
    sentence = (
        f"{int(candidate.sum()):,} ({100 * candidate.float().mean():.3g} %) are improbable tokens of correct responses "
        f"(probability below {arguments.prob_threshold:g})"
    )
    if arguments.token_rule == "s2t":
        sentence += f", of which STAPO would silence {int(silenced.sum()):,} ({100 * silenced.float().mean():.3g} %)."
    else:
        sentence += f". The rule '{arguments.token_rule}' would silence {int(silenced.sum()):,} of the tokens"
        if "edited_advantage" in tokens:
            own = torch.cat(
                [torch.full_like(x, c.advantage) for x, c in zip(tokens["edited_advantage"], completions, strict=True)]
            )
            sentence += f" and change the advantage of {int((torch.cat(tokens['edited_advantage']) != own).sum()):,}"
        sentence += "."
    console.print(
        f"{len(completions):,} completions, {total:,} tokens: {sentence}\nLook at them with: stapo report "
        f"{arguments.output_dir}",
        soft_wrap=True,
        markup=False,
        highlight=False,
    )
