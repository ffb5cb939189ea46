"""`stapo train --dry_run`: what a run would do and take, and contradictory settings, without a GPU or the hub."""

import inspect
import reprlib
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

from datasets import Dataset, disable_progress_bars
from rich.console import Console
from rich.table import Table
from rich.text import Text
from transformers import PretrainedConfig
from trl import DatasetMixtureConfig, ModelConfig

from ... import data
from ..recipes.arguments import EMBEDDED, TrainArguments, get_datasets, get_reward_func
from ..recipes.parser import RecipeParser
from .memory import Size, count_parameters, count_vllm_sequences, estimate_memory
from .plan import Plan, check_id, find_contradictions, find_model_config, planned_config


def dry_run(settings: dict, argv: Sequence[str], metadata: dict, num_processes: int | None = None) -> None:
    """Print what a run would do, and exit with code 2 if it could not; `metadata` is the recipe's `about`."""
    config_class = planned_config(num_processes or metadata.get("gpus", 1))
    parser = RecipeParser((TrainArguments, config_class, ModelConfig, DatasetMixtureConfig), "stapo train")
    settings = {key: value for key, value in settings.items() if key != "env"}
    problems = []
    disable_progress_bars()  # of a local data set
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        plan = Plan(*parser.parse(settings, argv), metadata)
        if plan.args.max_completion_length is None:
            parser.error(
                "max_completion_length is not set, so the memory cannot be estimated: give the longest completion."
            )
        model, dataset = plan.model_args.model_name_or_path, plan.script_args.dataset_name
        for name in plan.script_args.reward_funcs:
            if "." not in name:  # a dotted path is imported by the run alone
                _collect(problems, get_reward_func, name, plan.args)
        for name in (model, dataset):
            _collect(problems, check_id, name)
        plan.num_problems = plan.known_data.get("problems")
        if Path(dataset or "").is_file():
            sets = _collect(problems, get_datasets, plan.script_args, plan.mixture, plan.args.eval_strategy != "no")
            plan.num_problems = len(sets[0]) if sets and isinstance(sets[0], Dataset) else None
        config = _collect(problems, find_model_config, model, metadata)
        size = config and _collect(problems, count_parameters, config, plan.model_args)
        problems += find_contradictions(plan, config)

    console = Console(width=None if sys.stdout.isatty() else 160)
    names = [*settings, *(name[2:].partition("=")[0].replace("-", "_") for name in argv if name.startswith("--"))]
    _show(console, "Settings", _describe_settings(plan, names))
    _show(console, "Batches", _describe_batches(plan))
    if size is not None:
        _show(console, "Memory of each process in GiB, an estimate", _describe_memory(plan, config, size))
    _show(console, "Downloads", _describe_downloads(plan, size))
    if "evaluation" in metadata:
        print(f"Afterwards: stapo evaluate --model {plan.args.output_dir} {metadata['evaluation']}")
    for problem in problems:
        print(f"stapo train: {problem}", file=sys.stderr)
    if problems:
        sys.exit(2)


def _collect(problems: list[str], function: Callable, *arguments):
    """The result of a check; if it refuses, `None`, with its sentence added to the problems."""
    try:
        return function(*arguments)
    except (OSError, ValueError) as error:
        problems.append(" ".join(str(error).split()))


def _describe_settings(plan: Plan, names: list[str]) -> dict[str, str]:
    """The named fields after all overrides and the configuration's own changes."""
    shown = {}
    for name in dict.fromkeys(names):
        for arguments in (plan.script_args, plan.args, plan.model_args, plan.mixture):
            if hasattr(arguments, name):
                value = getattr(arguments, name)
                shown[name] = reprlib.repr(getattr(value, "value", value)).strip("'")
    return shown


def _describe_batches(plan: Plan) -> dict[str, str]:
    args, groups, total = plan.args, plan.completions_per_step / plan.args.num_generations, plan.total_steps
    prompt = f"{plan.prompt_length:,}" if plan.prompt_length else "of unknown length"
    shown = {
        "completions per optimizer step": f"{args.world_size} processes x {args.per_device_train_batch_size} x "
        f"{args.gradient_accumulation_steps} accumulated = {plan.completions_per_step:,} ({groups:g} prompts x "
        f"{args.num_generations})",
        "completions per generation": f"{args.generation_batch_size:,} ({plan.prompts_per_generation:,} prompts x "
        f"{args.num_generations})",
        "optimizer steps per generation": f"{plan.steps_per_generation:g}",
        "tokens per optimizer step": f"at most {plan.completions_per_step * plan.sequence_length:,} "
        f"(prompt {prompt} + completion {args.max_completion_length:,})",
    }
    if plan.steps_per_epoch:
        shown["problems"] = f"{plan.num_problems:,}, {plan.steps_per_epoch:,} optimizer steps per epoch"
    epochs = f", {total / plan.steps_per_epoch:.3g} epochs" if total and plan.steps_per_epoch else ""
    shown["optimizer steps"] = f"{total:,}{epochs}" if total else "not known before the data is"
    return shown


def _describe_memory(plan: Plan, config: PretrainedConfig, size: Size) -> dict[str, str]:
    args, metadata, length, gpu_memory = (
        plan.args,
        plan.metadata,
        plan.sequence_length,
        plan.metadata.get("gpu_memory"),
    )
    estimate = estimate_memory(
        config, size, plan.model_args, args, length, metadata.get("launch", ""), gpu_memory or 0
    )
    shown = {"parameters": f"{size.total / 1e6:,.1f} M, trained {size.trained / 1e6:,.1f} M"}
    shown |= {name: f"{value:.1f}" for name, value in estimate.items() if value}
    if gpu_memory and "generation: vLLM" in shown:
        sequences = max(count_vllm_sequences(config, size, args, length, gpu_memory), 0)
        shown["generation: vLLM"] += f" (its cache holds about {sequences:.1f} sequences of full length"
        shown["generation: vLLM"] += "; vLLM needs room for one)" if sequences < 1 else ")"
    if gpu_memory:
        shown[f"available on {metadata.get('gpu', 'the GPU')}"] = f"{gpu_memory}"
    return shown


def _describe_downloads(plan: Plan, size: Size | None) -> dict[str, str]:
    model, dataset, shown = plan.model_args.model_name_or_path, plan.script_args.dataset_name, {}
    if model and model != EMBEDDED and not Path(model).is_dir():
        shown[model] = f"about {size.total * 2 / 1e9:.2g} GB in bf16" if size else "size not known"
    if dataset and dataset != EMBEDDED and not Path(dataset).exists():
        if dataset in data.NAMES:
            dataset = inspect.signature(data.find_loader(dataset)).parameters["repo_id"].default
        gigabytes = plan.known_data.get("download")
        shown[dataset] = f"{gigabytes} GB" if gigabytes else "size not known"
    return shown or {"nothing": ""}


def _show(console: Console, title: str, rows: dict[str, str]) -> None:
    table = Table(title=title, title_justify="left", show_header=False, box=None, padding=(0, 2))
    for name, value in rows.items():
        table.add_row(Text(name), Text(value))  # not as markup
    console.print(table)
