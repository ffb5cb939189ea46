"""`stapo compare`: whether two results of `stapo evaluate` differ by more than noise."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ..evaluation.comparison import compare, different_settings, read_result
from ..observe.text import show_text


def main(argv: Sequence[str]) -> None:
    """Print the difference of two results."""
    parser = argparse.ArgumentParser("stapo compare", description="Is the difference of two results more than noise?")
    parser.add_argument("first", type=Path, metavar="A.json", help="result of `stapo evaluate`")
    parser.add_argument("second", type=Path, metavar="B.json", help="another one")
    paths = parser.parse_args(argv)
    try:
        results = [read_result(path) for path in (paths.first, paths.second)]
        report = compare(*results)
    except (OSError, ValueError) as error:
        sys.exit(f"stapo compare: {error}")
    console = Console()
    for letter, path, result in zip("AB", (paths.first, paths.second), results, strict=True):
        title = f"{letter}: {path}, {result['model']}, {result['decoding']}"
        console.print(show_text(title), markup=False, soft_wrap=True)
    for difference in different_settings(*results):
        console.print(show_text(f"The settings differ, {difference}."), markup=False, soft_wrap=True)
    table = Table()
    for column in ("benchmark", "problems", "A", "B", "B - A", "95 %", ""):
        table.add_column(column, justify="left" if column in ("benchmark", "") else "right")
    for name, row in report.items():
        low, high = row["interval"]
        table.add_row(
            escape(show_text(name)),
            str(row["problems"]),
            f"{100 * row['first']:.2f}",
            f"{100 * row['second']:.2f}",
            f"{100 * row['difference']:+.2f}",
            f"{100 * low:+.1f} to {100 * high:+.1f}",
            "noise" if row["is_noise"] else "B is better" if low > 0 else "A is better",
        )
    console.print(table)
    console.print("noise: 0 lies in the interval (paired bootstrap over problems).")
