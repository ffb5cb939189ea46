"""Two gloo processes: the same tokens and the same step as one process, the same collectives on every rank."""

import os
import subprocess
import sys
from pathlib import Path

import pytest


SCRIPT = Path(__file__).parent / "two_processes.py"


def run(command: list[str]) -> str:
    process = subprocess.run(command, capture_output=True, text=True, timeout=240, env={**os.environ, "CI": "1"})
    assert process.returncode == 0, process.stdout[-3000:] + process.stderr[-6000:]
    return process.stdout


@pytest.mark.slow
def test_two_processes_silence_and_train_as_one(tmp_path):
    reference = str(tmp_path / "reference.pt")
    run([sys.executable, str(SCRIPT), "reference", reference])
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    output = run([*launcher, str(SCRIPT), "compare", reference])
    assert "rank 0: all checks passed" in output and "rank 1: all checks passed" in output
