"""What is found in a run's folder: metrics, the token log, TRL's own logs, or nothing."""

import json

import pytest
from made_up_runs import write_metrics, write_run

from stapo_trl.report.load import load_runs


def write_state(folder, step, log_history):
    (folder / f"checkpoint-{step}").mkdir(parents=True)
    (folder / f"checkpoint-{step}" / "trainer_state.json").write_text(json.dumps({"log_history": log_history}))


def test_metrics_and_token_log_are_read_with_the_settings(tmp_path):
    (run,) = load_runs([write_run(tmp_path / "run", num_steps=20, num_tokens=50)])
    assert run.name == "run" and list(run.metrics.index) == list(range(1, 21))
    assert run.tokens.num_rows == 50 and run.number("prob_threshold") == 0.002
    assert len(run.series("reward")) == 10 and run.series("no", "such").empty
    assert run.series("s2t/entropy", "entropy").equals(run.series("s2t/entropy"))


def test_a_plain_run_is_read_from_its_newest_checkpoint(tmp_path):
    write_state(tmp_path, 100, [{"step": 1, "reward": 0.25}, {"step": 2, "reward": 0.5}])
    write_state(tmp_path, 20, [{"step": 1, "reward": 9.0}])
    (run,) = load_runs([tmp_path])
    assert run.series("reward").to_dict() == {1: 0.25, 2: 0.5} and run.tokens.num_rows == 0


def test_values_that_are_no_finite_numbers_and_unfinished_lines_are_left_out(tmp_path):
    lines = ['{"step": 1, "reward": NaN}', '{"step": 2, "reward": "x"}', '{"step": 3, "reward": Infinity}', "7"]
    (tmp_path / "metrics.jsonl").write_text("\n".join([*lines, '{"step": 4, "reward": 1.0}', '{"step": 5, "rew']))
    (run,) = load_runs([tmp_path])
    assert run.series("reward").to_dict() == {4: 1.0}


def test_runs_of_one_name_are_told_apart(tmp_path):
    for parent in ("a", "b"):
        (tmp_path / parent / "run").mkdir(parents=True)
        write_metrics(tmp_path / parent / "run", num_steps=2)
    runs = load_runs([tmp_path / "a" / "run", tmp_path / "b" / "run"])
    assert [run.name for run in runs] == ["a/run", "b/run"]


def test_a_folder_with_nothing_is_refused_with_a_sentence(tmp_path):
    with pytest.raises(ValueError, match=r"Nothing to report .*absent.*Give the output_dir"):
        load_runs([tmp_path / "absent"])
    (tmp_path / "token_log").mkdir()
    (tmp_path / "token_log" / "tokens-00000001-00000.parquet").write_bytes(b"no parquet")
    with pytest.raises(ValueError, match="cannot be read"):
        load_runs([tmp_path])
