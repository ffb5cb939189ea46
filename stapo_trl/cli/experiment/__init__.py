"""`stapo experiment`: the paper's comparison on a task that fits a CPU, over several seeds."""

import argparse
import json
import multiprocessing
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from importlib.metadata import version
from multiprocessing.pool import ThreadPool
from pathlib import Path

from tqdm.auto import tqdm

from ...observe.files import write_atomically
from .run import train_run, warm_up
from .settings import METHODS, Experiment, load_experiment
from .table import compare_methods, read_run, to_markdown


def run_folder(output: Path, method: str, seed: int) -> Path:
    return output / method / f"seed-{seed}"


def run_all(experiment: Experiment, output: Path, jobs: int, deadline: float) -> list[str]:
    """
    Train every unfinished run, each in a process of its own, `jobs` at a time, until the deadline (`time.time()`).

    Returns a sentence for each run that failed.
    """
    # Seed by seed, so that the finished runs can be compared at any time
    pairs = [(method, seed) for seed in range(experiment.num_seeds) for method in experiment.methods]
    folders = {pair: run_folder(output, *pair) for pair in pairs}
    todo = [pair for pair in pairs if not (folders[pair] / "result.json").exists()]
    warm_starts = {f"warm start {seed}": (warm_up, experiment, seed) for _, seed in todo}
    runs = {
        f"{method}, seed {seed}": (train_run, experiment, method, seed, folders[method, seed], deadline)
        for method, seed in todo
    }
    errors = []
    with tqdm(total=len(pairs), initial=len(pairs) - len(todo), desc="Runs", disable=None) as bar:
        # First each seed's warm start, or every method would train it
        for tasks in (warm_starts, runs):
            with ThreadPool(jobs) as pool:
                for name, code in pool.imap_unordered(
                    lambda task: (task[0], run_apart(*task[1]) if time.time() < deadline else 0), tasks.items()
                ):
                    bar.update(tasks is runs)
                    if code != 0:
                        errors.append(f"{name} failed: see its error above.")
            if errors:
                break
    return errors


def run_apart(function: Callable, *arguments) -> int:
    """Call a function in a process of its own; returns the exit code."""
    process = multiprocessing.get_context("spawn").Process(target=function, args=arguments)
    process.start()
    process.join()
    return process.exitcode


def summarize(experiment: Experiment, output: Path) -> str:
    """Write `experiment.json`, `experiment.md` and the curves of the finished runs; returns the table."""
    runs = {
        method: {
            seed: numbers
            for seed in range(experiment.num_seeds)
            if (numbers := read_run(run_folder(output, method, seed)))
        }
        for method in experiment.methods
    }
    runs = {method: seeds for method, seeds in runs.items() if seeds}
    if not runs:
        return ""
    table = compare_methods(runs)
    text = to_markdown(table, {method: len(seeds) for method, seeds in runs.items()})
    record = {
        "experiment": asdict(experiment),
        "versions": {name: version(name) for name in ("stapo-trl", "trl", "transformers", "torch")},
        "runs": runs,
        "table": {method: {name: asdict(cell) for name, cell in cells.items()} for method, cells in table.items()},
    }
    write_atomically(output / "experiment.json", json.dumps(record, indent=1))
    write_atomically(output / "experiment.md", text)
    try:
        from .figure import draw_experiment
    except ModuleNotFoundError as error:
        return text + f'\nNo curves without {error.name}: pip install "stapo-trl[report]".\n'
    folders = {method: [run_folder(output, method, seed) for seed in seeds] for method, seeds in runs.items()}
    for ending in ("png", "svg"):
        draw_experiment(folders, output / f"experiment.{ending}")
    return text


def main(argv: Sequence[str]) -> None:
    """Run the experiment, or resume it, and print its table."""
    parser = argparse.ArgumentParser("stapo experiment", description=__doc__)
    parser.add_argument(
        "overrides", nargs="*", metavar="name=value", help="fields of the training, or warm_start.name=value"
    )
    parser.add_argument("--scale", choices=["cpu", "gpu"], default="cpu")
    parser.add_argument("--output", type=Path, default=Path("stapo-experiment"), help="folder of the runs")
    parser.add_argument("--methods", nargs="+", choices=METHODS, help="default: those of the paper")
    parser.add_argument("--seeds", type=int, dest="num_seeds", help="runs of each method")
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time")
    parser.add_argument(
        "--minutes", type=float, default=float("inf"), help="stop after this time; the same command resumes"
    )
    arguments = parser.parse_args(argv)
    changes = {"methods": arguments.methods, "num_seeds": arguments.num_seeds}
    changes = {name: value for name, value in changes.items() if value is not None}
    try:
        experiment = load_experiment(arguments.scale, arguments.overrides, **changes)
        check_folder(experiment, arguments.output)
    except ValueError as error:
        sys.exit(f"stapo experiment: {error}")
    errors = run_all(experiment, arguments.output, arguments.jobs, time.time() + 60 * arguments.minutes)
    print(summarize(experiment, arguments.output) or "No run is finished: repeat the command to resume.")
    print(f"Runs, table and curves: {arguments.output}.")
    compared = [run_folder(arguments.output, method, 0) for method in ("justrl", "stapo")]
    if all((folder / "result.json").exists() for folder in compared):
        print(f"See the tokens: stapo report {' '.join(map(str, compared))}")
    if errors:
        sys.exit("\n".join(errors))


def check_folder(experiment: Experiment, output: Path) -> None:
    """Refuse a folder with runs of another task or training; record the settings in a new one."""
    path = output / "settings.json"
    settings = {"warm_start": experiment.warm_start, "training": experiment.training}
    if path.exists():
        try:
            before = json.loads(path.read_text())
            names = [
                name
                for part in settings
                for name in sorted(before[part].keys() | settings[part].keys())
                if before[part].get(name) != settings[part].get(name)
            ]
        except (ValueError, KeyError, TypeError, AttributeError):
            raise ValueError(f"{path} is not that of an experiment: give another --output.") from None
        if names:
            raise ValueError(f"{output} holds runs with other settings ({', '.join(names)}): give another --output.")
        return
    output.mkdir(parents=True, exist_ok=True)
    write_atomically(path, json.dumps(settings, indent=1))
