"""The six evaluation sets: as published, in other shapes, and with the real problems."""

from pathlib import Path

import pytest

from stapo_trl.data import BENCHMARKS, load_benchmark
from stapo_trl.rewards import grade


REAL = Path(__file__).parents[3] / "shared" / "data" / "benchmarks"
needs_real = pytest.mark.skipif(not REAL.is_dir(), reason=f"the published evaluation sets are not at {REAL}")
SIZES = {"aime24": 30, "aime25": 30, "amc23": 40, "math500": 500, "minerva": 272, "olympiadbench": 674}


@needs_real
@pytest.mark.parametrize("name", BENCHMARKS)
def test_every_real_problem_loads_and_its_own_gold_is_right(name, caplog):
    problems = load_benchmark(name, path=REAL)
    assert len(problems) == SIZES[name] == len(set(problems["problem_id"])) and not caplog.records
    answers = [f"\\boxed{{{solution}}}" for solution in problems["solution"]]
    assert all(verdict.correct for verdict in grade(answers, problems["solution"]))
