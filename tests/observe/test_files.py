"""A file is there whole or not at all."""

import json

import pytest

from stapo_trl.observe.files import MetricsFile, read_metrics, replace_atomically, write_atomically


def test_a_write_that_fails_leaves_the_former_file(tmp_path):
    write_atomically(tmp_path / "a", "é\n")
    with pytest.raises(UnicodeEncodeError):
        write_atomically(tmp_path / "a", "b\ud800")
    with pytest.raises(RuntimeError), replace_atomically(tmp_path / "a") as unfinished:
        unfinished.write_text("half")
        raise RuntimeError
    assert (tmp_path / "a").read_bytes() == "é\n".encode()


def test_every_log_is_a_line_with_its_step(make_trainer, tmp_path):
    trainer = make_trainer(callbacks=[MetricsFile()], max_steps=3)
    trainer.train()
    entries = read_metrics(tmp_path / "run" / "metrics.jsonl")
    assert [entry["step"] for entry in entries] == [1, 2, 3, 3]  # the last is the summary
    assert all("s2t/silenced_share" in entry and "reward" in entry for entry in entries[:3])


def test_a_resumed_run_has_each_step_once(make_trainer, tmp_path):
    make_trainer(callbacks=[MetricsFile()], max_steps=4, save_strategy="steps", save_steps=2).train()
    resumed = make_trainer(callbacks=[MetricsFile()], max_steps=5, save_strategy="steps", save_steps=2)
    resumed.train(resume_from_checkpoint=str(tmp_path / "run" / "checkpoint-2"))
    steps = [entry["step"] for entry in read_metrics(tmp_path / "run" / "metrics.jsonl") if "reward" in entry]
    assert steps == [1, 2, 3, 4, 5]


def test_a_new_run_in_an_old_folder_starts_a_new_file(make_trainer, tmp_path):
    for _ in range(2):
        make_trainer(callbacks=[MetricsFile()], max_steps=1).train()
    assert [entry["step"] for entry in read_metrics(tmp_path / "run" / "metrics.jsonl")] == [1, 1]


def test_a_line_that_a_killed_run_left_unfinished_is_passed_over(tmp_path):
    file = tmp_path / "metrics.jsonl"
    file.write_text(json.dumps({"step": 1}) + '\n{"step": 2, "rew')
    assert read_metrics(file) == [{"step": 1}]
    assert read_metrics(tmp_path / "missing.jsonl") == []


def test_a_disk_that_refuses_ends_the_metrics_with_one_warning_and_not_the_run(make_trainer, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "metrics.jsonl").mkdir()  # a folder where the file should be
    trainer = make_trainer(callbacks=[MetricsFile()])
    with pytest.warns(UserWarning, match="metrics.jsonl ends here and training goes on") as caught:
        trainer.train()
    assert trainer.state.global_step == 2
    assert len([warning for warning in caught if "ends here" in str(warning.message)]) == 1
