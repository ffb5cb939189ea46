"""`stapo report RUN_DIR [RUN_DIR ...]`."""

import argparse
import time
from collections.abc import Sequence


def main(argv: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(
        "stapo report", description="Write one HTML page about one or several runs, and its figures."
    )
    parser.add_argument("run_dirs", nargs="+", metavar="RUN_DIR", help="output_dir of a training, or of `stapo score`")
    parser.add_argument("--output", help="folder for the report (default: `report` in the first RUN_DIR)")
    arguments = parser.parse_args(argv)
    start = time.monotonic()
    try:
        from ..observe.report import build_report

        path = build_report(arguments.run_dirs, arguments.output)
    except ModuleNotFoundError as error:
        parser.exit(1, f'No report without {error.name}: pip install "stapo-trl[report]".\n')
    except (OSError, ValueError) as error:
        parser.exit(1, f"{error}\n")
    size = path.stat().st_size / 1e6
    print(f"{path} ({size:.1f} MB, {time.monotonic() - start:.0f} s), and its figures as PNG and SVG beside it.")
