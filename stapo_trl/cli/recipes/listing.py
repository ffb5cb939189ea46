"""`stapo recipes`: the recipes of the package, with what they train, on what, on which hardware, for how long."""

import argparse
import sys
from collections.abc import Sequence

from rich.box import HEAVY_HEAD
from rich.console import Console
from rich.table import Table

from . import list_recipes, read_recipe


def main(argv: Sequence[str]) -> None:
    """
    Print the table.

    Args:
        argv (`Sequence[str]`):
            Command-line arguments after `stapo recipes`; there are none but `--help`.
    """
    argparse.ArgumentParser("stapo recipes", description=__doc__).parse_args(argv)
    terminal = sys.stdout.isatty()
    table = Table(box=HEAVY_HEAD if terminal else None, pad_edge=terminal)
    for column in ("recipe", "what", "model", "data", "hardware", "wall time"):
        table.add_column(column, no_wrap=not terminal)
    for name in list_recipes():
        table.add_row(name, *describe(name))
    Console(width=None if terminal else 200).print(table)
    print("stapo train --recipe NAME [key=value ...] trains; --dry_run shows first what it takes.")


def describe(name: str) -> tuple[str, str, str, str, str]:
    """
    What a recipe does, its model, data, hardware and wall time.

    Example:

    ```python
    >>> describe("arithmetic")[2:4]
    ('embedded/arithmetic', 'none, two CPU cores')
    ```
    """
    recipe = read_recipe(name)
    about = recipe["about"]
    hardware = about["gpu"] if about["gpus"] == 1 else f"{about['gpus']} x {about['gpu']}"
    basis = f"measured {about['measured']}" if "measured" in about else "estimated"
    return (
        about["summary"],
        recipe["model_name_or_path"],
        recipe["dataset_name"],
        hardware,
        f"{about['wall_time']} ({basis})",
    )
