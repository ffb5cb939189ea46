import json
import os
import signal

import pytest
import torch
from accelerate.utils import reduce
from transformers import TrainerCallback

from stapo_trl.arithmetic.heldout import HeldOutAccuracy
from stapo_trl.arithmetic.problems import load_arithmetic
from stapo_trl.arithmetic.run import ProgressBar
from stapo_trl.observe.files import MetricsFile, read_metrics
from stapo_trl.observe.report.curves import draw_run
from stapo_trl.trainer.resume import StopOnInterrupt


class InterruptAt(TrainerCallback):
    """Sends this process a signal in the middle of a step, as Ctrl-C or a scheduler does."""

    def __init__(self, step, number):
        self.step, self.number = step, number

    def on_step_begin(self, args, state, control, **kwargs):
        if state.global_step == self.step:
            os.kill(os.getpid(), self.number)


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


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_the_step_saves_and_a_resumed_run_is_exact(make_trainer, tmp_path, number):
    settings = {"max_steps": 4, "save_strategy": "steps", "save_steps": 100}
    whole = make_trainer(**settings)
    whole.train()

    stop, handler = StopOnInterrupt(), signal.getsignal(number)
    stopped = make_trainer(**settings, callbacks=[stop, InterruptAt(1, number)])
    stopped.train()
    assert stop.stopped and stopped.state.global_step == 2
    assert signal.getsignal(number) is handler

    resumed = make_trainer(**settings)
    resumed.train(resume_from_checkpoint=str(tmp_path / "run" / "checkpoint-2"))
    for name, value in whole.model.state_dict().items():
        assert torch.equal(value, resumed.model.state_dict()[name]), name


def test_a_signal_that_comes_while_the_processes_ask_each_other_is_not_lost(make_trainer, monkeypatch):
    stop, asked = StopOnInterrupt(), []

    def ask(flag):
        asked.append(flag.item())
        answer = reduce(flag)
        if len(asked) == 1:
            os.kill(os.getpid(), signal.SIGTERM)
        return answer

    monkeypatch.setattr("stapo_trl.trainer.resume.reduce", ask)
    trainer = make_trainer(callbacks=[stop], max_steps=4)
    trainer.train()
    assert stop.stopped and asked == [0.0, 1.0] and trainer.state.global_step == 2


def test_heldout_accuracy_stands_with_the_other_metrics_of_its_step(make_trainer):
    trainer = make_trainer(max_steps=4)
    trainer.add_callback(HeldOutAccuracy(trainer, load_arithmetic("validation", 5, num_terms=3), every_steps=2))
    trainer.train()
    assert [entry["step"] for entry in trainer.state.log_history if "heldout/greedy_accuracy" in entry] == [2, 4]


def test_measuring_does_not_change_the_run(make_trainer):
    plain = make_trainer(max_steps=3)
    plain.train()
    measured = make_trainer(max_steps=3)
    measured.add_callback(HeldOutAccuracy(measured, load_arithmetic("validation", 5, num_terms=3), every_steps=1))
    measured.train()
    for name, value in plain.model.state_dict().items():
        assert torch.equal(value, measured.model.state_dict()[name]), name


def test_the_bar_is_quiet_where_the_output_is_no_terminal(make_trainer, capfd):
    make_trainer(callbacks=[ProgressBar("STAPO", {"reward": "reward"})]).train()
    assert "STAPO" not in capfd.readouterr().err


def test_the_picture_of_a_run_is_drawn_and_an_empty_one_has_none(make_trainer, tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="Nothing to report"):
        draw_run(tmp_path / "empty")
    make_trainer(callbacks=[MetricsFile()]).train()
    picture = draw_run(tmp_path / "run")
    assert picture.read_bytes().startswith(b"\x89PNG") and picture.stat().st_size > 10_000


def test_a_disk_that_refuses_ends_the_metrics_with_one_warning_and_not_the_run(make_trainer, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "metrics.jsonl").mkdir()  # a folder where the file should be
    trainer = make_trainer(callbacks=[MetricsFile()])
    with pytest.warns(UserWarning, match="metrics.jsonl ends here and training goes on") as caught:
        trainer.train()
    assert trainer.state.global_step == 2
    assert len([warning for warning in caught if "ends here" in str(warning.message)]) == 1


def test_a_tracker_that_raises_stops_the_run_with_where_to_go_on(make_trainer):
    class Tracker(TrainerCallback):
        def on_log(self, args, state, control, **kwargs):
            if state.global_step == 2:
                raise ConnectionError("the tracker is gone")

    trainer = make_trainer(callbacks=[Tracker()], save_strategy="steps", save_steps=1)
    with pytest.raises(ConnectionError) as caught:
        trainer.train()
    (note,) = caught.value.__notes__
    assert (
        note.startswith("Training stopped after step 2; resume_from_checkpoint=True goes on from")
        and "checkpoint-1" in note
    )
