"""Metrics and token log are read from a run's folder, damaged and foreign ones too, or a sentence says what is wrong."""

import json

import pyarrow.parquet as pq
import pytest
from made_up_runs import write_metrics, write_run

from stapo_trl.observe.report.load import load_runs


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


def test_an_empty_folder_and_a_damaged_log_are_refused_by_name(tmp_path):
    with pytest.raises(ValueError, match=r"Nothing to report .*absent.*Give the output_dir"):
        load_runs([tmp_path / "absent"])
    (tmp_path / "token_log").mkdir()
    (tmp_path / "token_log" / "tokens-00000001-00000.parquet").write_bytes(b"no parquet")
    with pytest.raises(ValueError, match="cannot be read: .*tokens-00000001-00000.parquet is damaged"):
        load_runs([tmp_path])


def read_lines(folder, text):
    (folder / "metrics.jsonl").write_bytes(text.encode("utf-8", "surrogatepass"))
    return load_runs([folder])[0]


def test_damaged_lines_hide_no_others(tmp_path):
    lines = [
        '{"step": 1, "reward": 1}',
        "garbage",
        "[]",
        "1",
        "",
        "[" * 10_000,
        '{"step": 2, "reward": 2}',
        '{"step": 3',
    ]
    for end in ("\n", "\r\n"):
        assert read_lines(tmp_path, "\ufeff" + end.join(lines)).series("reward").to_dict() == {1: 1, 2: 2}


def test_only_line_feeds_end_lines(tmp_path):
    run = read_lines(tmp_path, '{"step": 1, "note": "\u2028\x85", "reward": 1}\n')
    assert run.series("reward").to_dict() == {1: 1}


def test_only_finite_numbers_of_whole_steps_are_shown(tmp_path):
    odd = ["NaN", "Infinity", "1e308", "1" + "0" * 400, '"high"', "[1]", "{}", "null"]
    lines = [f'{{"step": {step}, "reward": {value}}}\n' for step, value in enumerate(odd)]
    lines += [f'{{"step": {step}, "reward": 7}}\n' for step in ("-1", "true", '"9"', "1.5", "null", "1" + "0" * 30)]
    run = read_lines(tmp_path, "".join(lines) + '{"step": 50, "reward": 0.5, "\ud800": 1}\n')
    assert run.series("reward").to_dict() == {50: 0.5} and max(run.metrics.index) == 50


def test_a_checkpoint_without_a_log_is_passed_over(tmp_path):
    write_state(tmp_path, 1, [{"step": 1, "reward": 0.25}])
    (tmp_path / "checkpoint-2").mkdir()
    read = {}
    for content in ("garbage", "[]", "{}", '{"log_history": 5}', "\x00"):
        (tmp_path / "checkpoint-2" / "trainer_state.json").write_text(content)
        read[content] = load_runs([tmp_path])[0].series("reward").to_dict()
    assert not {content: values for content, values in read.items() if values != {1: 0.25}}


def test_a_shard_of_another_version_is_read_as_far_as_it_goes(tmp_path):
    write_run(tmp_path, num_steps=4, num_tokens=20)
    first = tmp_path / "token_log" / "tokens-00000001-00000.parquet"
    table = pq.read_table(first)
    other = table.drop_columns(["ratio"]).set_column(0, "step", table["step"].cast("int64"))
    pq.write_table(other.append_column("new", table["step"]), first.with_name("tokens-00000002-00000.parquet"))
    (run,) = load_runs([tmp_path])
    assert run.tokens.num_rows == 40 and run.tokens["ratio"].null_count == 20


def test_a_damaged_part_of_a_shard_is_named(tmp_path):
    write_run(tmp_path, num_steps=4, num_tokens=100)
    shard = tmp_path / "token_log" / "tokens-00000001-00000.parquet"
    shard.write_bytes(shard.read_bytes()[:200] + bytes(600) + shard.read_bytes()[800:])
    with pytest.raises(ValueError, match="tokens-00000001-00000.parquet is damaged"):
        load_runs([tmp_path])


def test_a_setting_that_is_no_threshold_is_not_drawn(tmp_path):
    write_run(tmp_path, num_steps=4, num_tokens=20)
    read = {}
    for threshold in (b"abc", b"nan", b"-1", b"0", b"inf", b"\xff"):
        for shard in (tmp_path / "token_log").iterdir():
            table = pq.read_table(shard)
            pq.write_table(table.replace_schema_metadata({b"prob_threshold": threshold, b"model": b"\xff"}), shard)
        read[threshold] = load_runs([tmp_path])[0].number("prob_threshold")
    assert not {threshold: value for threshold, value in read.items() if value is not None}
