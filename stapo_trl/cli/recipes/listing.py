"""`stapo recipes`: the recipes of the package, with model, data, hardware and wall time."""

import argparse
import sys
from collections.abc import Sequence

from rich.box import HEAVY_HEAD
from rich.console import Console
from rich.table import Table

from . import list_recipes, read_recipe


def main(argv: Sequence[str]) -> None:
    """Print the table."""
    argparse.ArgumentParser("stapo recipes", description=__doc__).parse_args(argv)
    terminal = sys.stdout.isatty()
    table = Table(box=HEAVY_HEAD if terminal else None, pad_edge=terminal)
    for column in ("recipe", "what", "model", "data", "hardware", "wall time"):
        table.add_column(column, no_wrap=not terminal)
    for name in list_recipes():
        table.add_row(name, *describe(name))
    Console(width=None if terminal else 200).print(table)
    print("stapo train --recipe NAME [key=value ...] trains; --dry_run shows beforehand what that takes.")


def describe(name: str) -> tuple[str, str, str, str, str]:
    """What a recipe does, its model, data, hardware and wall time."""
    recipe = read_recipe(name)
    metadata = recipe["about"]
    hardware = metadata["gpu"] if metadata["gpus"] == 1 else f"{metadata['gpus']} x {metadata['gpu']}"
    basis = f"measured {metadata['measured']}" if "measured" in metadata else "estimated"
    wall_time = f"{metadata['wall_time']} ({basis})"
    return metadata["summary"], recipe["model_name_or_path"], recipe["dataset_name"], hardware, wall_time
