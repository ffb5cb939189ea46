"""
Seconds, peak memory and size of the report of a long run.

    python tests/benchmarks/report.py [--steps 3000] [--tokens 1000000] [--completions 3000]

On two shared cores the defaults took 4 to 7 s, and made a page of 4.3 MB.
"""

import argparse
import resource
import sys
import tempfile
import time
from pathlib import Path


sys.path.insert(0, str(Path(__file__).parents[1]))

from made_up_runs import write_run  # noqa: E402

from stapo_trl.observe.report import build_report


parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--steps", type=int, default=3000)
parser.add_argument("--tokens", type=int, default=1_000_000)
parser.add_argument("--completions", type=int, default=3000)
arguments = parser.parse_args()
with tempfile.TemporaryDirectory() as folder:
    run = write_run(Path(folder) / "run", arguments.steps, arguments.tokens, arguments.completions)
    start = time.perf_counter()
    path = build_report([run])
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{arguments.steps} steps, {arguments.tokens} tokens, {arguments.completions} completions: {seconds:.1f} s,")
    print(f"{peak:.0f} MiB at most (data included), {path.stat().st_size / 1e6:.1f} MB of HTML")
    files = sum(file.stat().st_size for file in path.parent.iterdir()) - path.stat().st_size
    print(f"{files / 1e6:.1f} MB of figures")
