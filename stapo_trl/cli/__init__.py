"""The command `stapo`."""

import argparse
import importlib
import sys
from collections.abc import Sequence

from .. import __version__


# Each command's module, imported on use as torch and TRL take seconds, and its help
COMMANDS = {
    "train": (".train", "train with STAPO; without arguments, the embedded recipe on a CPU"),
    "recipes": (".recipes.listing", "the recipes of `stapo train --recipe NAME`"),
    "evaluate": (".evaluate", "avg@N, pass@k and maj@k of a model on the maths benchmarks"),
    "compare": (".compare", "whether two results of `stapo evaluate` differ by more than noise"),
    "data": (".data", "look at data sets: `stapo data check NAME_OR_PATH`"),
    "report": (".report", "one HTML page and figures of one or several runs"),
    "experiment": (".experiment", "the paper's comparison on a task that fits a CPU, over several seeds"),
    "score": (".score.command", "which tokens of saved completions are spurious, without training"),
}


def main(argv: Sequence[str] | None = None) -> None:
    """Run `stapo COMMAND ...`, by default with the arguments of the process."""
    argv = list(sys.argv[1:] if argv is None else argv)
    parser = argparse.ArgumentParser("stapo", description="STAPO for TRL: GRPO that silences spurious tokens.")
    parser.add_argument("--version", action="version", version=f"stapo-trl {__version__}")
    commands = parser.add_subparsers(dest="command", required=True)
    for name, (_, text) in COMMANDS.items():
        commands.add_parser(name, help=text, add_help=False)
    module, _ = COMMANDS[parser.parse_args(argv[:1]).command]
    importlib.import_module(module, __package__).main(argv[1:])
