import json
import math

import numpy as np
import pytest

from stapo_trl.cli.experiment.table import COLUMNS, compare_methods, read_run, student_quantile, to_markdown


def write_run(folder, entries, **result):
    folder.mkdir(parents=True)
    (folder / "metrics.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    (folder / "result.json").write_text(json.dumps({"greedy": 0.5, "sampled": 0.25, "seconds": 1.0} | result))


def test_late_metrics_are_of_the_last_quarter_and_silencing_of_the_whole_run(tmp_path):
    entries = [
        {"step": step, "reward": step, "s2t/entropy": 0.1 * step, "grad_norm": 2.0, "s2t/silenced_share": step == 1}
        for step in range(1, 9)
    ]
    write_run(tmp_path / "run", [*entries, {"step": 8, "train_loss": 0.0}])
    numbers = read_run(tmp_path / "run")
    assert numbers["reward"] == 7.5 and numbers["entropy"] == pytest.approx(0.75)
    assert numbers["silenced"] == 1 / 8 and numbers["grad_norm"] == 2.0
    assert numbers["greedy"] == 0.5 and numbers["sampled"] == 0.25


def test_a_spike_is_a_gradient_norm_far_above_the_median_of_its_run(tmp_path):
    norms = [0.5] * 9 + [9.9, 10.0, 10.1, 300.0]  # 20 x 0.5 = 10
    write_run(tmp_path / "run", [{"step": step, "grad_norm": norm} for step, norm in enumerate(norms, start=1)])
    assert read_run(tmp_path / "run")["spikes"] == 2


def test_an_unfinished_run_counts_for_nothing(tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "reward": 1.0}\n')
    assert read_run(tmp_path) is None


def test_differences_are_paired_by_seed():
    """The seeds lie far apart and the methods do not: unpaired, no difference would show."""
    values = [0.1, 0.5, 0.9]
    runs = {
        "stapo": {seed: {"greedy": value + 0.02 + 0.001 * seed} for seed, value in enumerate(values)},
        "justrl": {seed: {"greedy": value} for seed, value in enumerate(values)},
    }
    cell = compare_methods(runs)["justrl"]["greedy"]
    differences = [0.02, 0.021, 0.022]
    margin = 4.302653 * np.std(differences, ddof=1) / math.sqrt(3)
    assert cell.difference == pytest.approx(0.021)
    assert cell.interval == pytest.approx((0.021 - margin, 0.021 + margin))
    assert not cell.is_noise and cell.deviation == pytest.approx(0.4)


def test_only_seeds_of_both_methods_are_compared():
    runs = {"stapo": {0: {"greedy": 0.5}}, "grpo": {0: {"greedy": 0.4}, 1: {"greedy": 0.0}}}
    cell = compare_methods(runs)["grpo"]["greedy"]
    assert cell.difference == pytest.approx(0.1) and cell.mean == 0.2
    assert cell.is_noise, "one pair has no interval"


def test_intervals_hold_their_level():
    """Of 95 % intervals over five seeds of equal methods, one in twenty leaves out zero."""
    rng = np.random.default_rng(0)
    missed = 0
    for _ in range(2000):
        pairs = rng.normal(size=(2, 5))
        stapo, grpo = ({seed: {"greedy": value} for seed, value in enumerate(row)} for row in pairs)
        missed += not compare_methods({"stapo": stapo, "grpo": grpo})["grpo"]["greedy"].is_noise
    assert 0.035 < missed / 2000 < 0.065


def test_student_quantiles_are_those_of_the_tables():
    expected = {1: 12.7062, 2: 4.30265, 4: 2.77645, 9: 2.26216, 30: 2.04227}
    assert {degrees: student_quantile(degrees) for degrees in expected} == pytest.approx(expected, rel=1e-5)


def test_the_table_marks_what_is_more_than_noise():
    numbers = dict.fromkeys(COLUMNS, 0.0)
    runs = {
        "stapo": {seed: numbers | {"greedy": 0.9 + 0.01 * seed} for seed in range(3)},
        "grpo": {seed: numbers | {"greedy": 0.5} for seed in range(3)},
    }
    text = to_markdown(compare_methods(runs), {"stapo": 3, "grpo": 3})
    assert "| stapo | 3 | 91.0 ± 1.0 |" in text
    assert "| grpo | **+41.0 (+38.5 to +43.5)** | +0.0 (+0.0 to +0.0) |" in text


def test_one_seed_has_neither_spread_nor_interval():
    numbers = dict.fromkeys(COLUMNS, 0.5)
    text = to_markdown(compare_methods({"stapo": {0: numbers}, "grpo": {0: numbers}}), {"stapo": 1, "grpo": 1})
    assert "| stapo | 1 | 50.0 | 50.0 |" in text and "| grpo | +0.0 (one pair) |" in text
    alone = to_markdown(compare_methods({"grpo": {0: numbers}}), {"grpo": 1})
    assert "| grpo | no pair |" in alone
