import json
import time

import pytest
from PIL import Image

from stapo_trl import cli
from stapo_trl.cli.experiment import run_all, run_apart
from stapo_trl.cli.experiment.run import train_run
from stapo_trl.cli.experiment.settings import load_experiment
from stapo_trl.observe.report import build_report


SHORT = ["max_steps=4", "steps_per_generation=2", "save_steps=2", "warm_start.max_steps=50", "heldout_every=2"]


@pytest.mark.slow
def test_an_experiment_runs_compares_and_goes_on(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("STAPO_CACHE", str(tmp_path / "cache"))
    output = tmp_path / "experiment"
    command = ["experiment", "--output", str(output), "--methods", "justrl", "stapo", "--jobs", "2", *SHORT]
    cli.main([*command, "--seeds", "1"])
    table = capsys.readouterr().out
    assert "| justrl | 1 |" in table and "| stapo | 1 |" in table
    record = json.loads((output / "experiment.json").read_text())
    assert record["runs"].keys() == {"justrl", "stapo"}
    assert record["runs"]["justrl"]["0"]["silenced"] == 0.0
    assert Image.open(output / "experiment.png").width > 1000

    entries = [json.loads(line) for line in (output / "stapo" / "seed-0" / "metrics.jsonl").read_text().splitlines()]
    steps = {entry["step"] for entry in entries if "heldout/greedy_accuracy" in entry}
    assert steps == {2, 4} == {entry["step"] for entry in entries if "heldout/sampled_accuracy" in entry}
    assert all("s2t/candidate_share" in entry and "grad_norm" in entry for entry in entries[:4])
    page = build_report([output / method / "seed-0" for method in ("justrl", "stapo")])
    assert "justrl/seed-0" in page.read_text() and "stapo/seed-0" in page.read_text()

    # A finished run is left alone, the next seed is added
    before = (output / "stapo" / "seed-0" / "result.json").stat().st_mtime_ns
    cli.main([*command, "--seeds", "2"])
    assert "| stapo | 2 |" in capsys.readouterr().out
    assert (output / "stapo" / "seed-0" / "result.json").stat().st_mtime_ns == before

    with pytest.raises(SystemExit, match="holds runs with other settings .learning_rate"):
        cli.main([*command, "learning_rate=1e-3"])


@pytest.mark.slow
def test_a_run_that_meets_its_deadline_saves_and_goes_on_later(tmp_path, monkeypatch):
    monkeypatch.setenv("STAPO_CACHE", str(tmp_path / "cache"))
    experiment = load_experiment("cpu", SHORT, methods=["stapo"], num_seeds=1)
    folder = tmp_path / "experiment" / "stapo" / "seed-0"
    assert run_apart(train_run, experiment, "stapo", 0, folder, time.time()) == 0
    assert (folder / "checkpoint-1").exists() and not (folder / "result.json").exists()
    assert run_all(experiment, tmp_path / "experiment", 1, deadline=time.time() + 600) == []
    assert (folder / "result.json").exists()
    steps = [json.loads(line)["step"] for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert steps == [1, 2, 3, 4, 4]


def test_a_run_that_fails_is_named_and_the_others_go_on(tmp_path, monkeypatch):
    monkeypatch.setattr("stapo_trl.cli.experiment.run_apart", lambda function, *task: int("grpo" in task))
    experiment = load_experiment("cpu", methods=["grpo", "stapo"], num_seeds=1)
    assert run_all(experiment, tmp_path, 2, deadline=float("inf")) == ["grpo, seed 0 failed: see its error above."]


def test_an_unknown_override_ends_with_a_sentence(tmp_path):
    with pytest.raises(SystemExit, match="stapo experiment: There is no field of STAPOConfig 'max_step'"):
        cli.main(["experiment", "--output", str(tmp_path), "max_step=4"])


def test_a_folder_of_something_else_is_refused_with_a_sentence(tmp_path):
    for text in ("", "[]", '{"model": "qwen3"}', '{"warm_start": 1, "training": {}}'):
        (tmp_path / "settings.json").write_text(text)
        with pytest.raises(SystemExit, match="settings.json is not that of an experiment"):
            cli.main(["experiment", "--output", str(tmp_path)])


def test_no_run_is_begun_after_the_deadline(tmp_path, monkeypatch):
    monkeypatch.setattr("stapo_trl.cli.experiment.run_apart", lambda *task: 1)
    assert run_all(load_experiment("cpu", num_seeds=1), tmp_path, 2, deadline=time.time()) == []
