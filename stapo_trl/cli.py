"""The command `stapo`."""

import argparse
import sys
from collections.abc import Sequence

from ._version import __version__


def main(argv: Sequence[str] | None = None) -> None:
    """
    Run `stapo COMMAND ...`.

    Args:
        argv (`Sequence[str]`, *optional*):
            Arguments, by default those of the process.
    """
    argv = list(sys.argv[1:] if argv is None else argv)
    parser = argparse.ArgumentParser("stapo", description="STAPO for TRL: GRPO that silences spurious tokens.")
    parser.add_argument("--version", action="version", version=f"stapo-trl {__version__}")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser(
        "train", help="train with STAPO; without arguments, the embedded recipe on a CPU", add_help=False
    )
    arguments, rest = parser.parse_known_args(argv[:1])
    if arguments.command == "train":
        from .train import main as train  # imports torch and TRL, which takes seconds

        train(argv[1:])
