"""A run that was stopped goes on as if it had not been, whatever stopped it and wherever."""

import errno
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from accelerate.utils import reduce
from peft import LoraConfig
from toys import read_records, weights
from transformers import TrainerCallback, TrainerState
from trl import GRPOConfig, GRPOTrainer

from stapo_trl.arithmetic.problems import load_arithmetic
from stapo_trl.observe.files import MetricsFile
from stapo_trl.observe.token_log import read_token_log
from stapo_trl.trainer.resume import StopOnInterrupt, last_complete_checkpoint


RUNS = {
    "one step per generation": {},
    "two steps per generation": {"per_device_train_batch_size": 4, "steps_per_generation": 2},
    "two iterations": {"num_iterations": 2},
    "accumulation, steps and iterations": {
        "per_device_train_batch_size": 4,
        "gradient_accumulation_steps": 2,
        "steps_per_generation": 4,
        "num_iterations": 2,
    },
    "windows across generations": {
        "per_device_train_batch_size": 4,
        "gradient_accumulation_steps": 4,
        "steps_per_generation": 6,
    },
    "LoRA with dropout": {
        "per_device_train_batch_size": 4,
        "steps_per_generation": 2,
        "peft_config": LoraConfig(target_modules=["q_proj"], lora_dropout=0.3),
    },
    "a second epoch": {"train_dataset": load_arithmetic("train", 6, num_terms=3)},
    "a second epoch, two steps per generation": {
        "train_dataset": load_arithmetic("train", 6, num_terms=3),
        "per_device_train_batch_size": 4,
        "steps_per_generation": 2,
    },
}


@pytest.mark.parametrize("run", RUNS)
def test_a_resumed_run_equals_an_uninterrupted_one_from_every_checkpoint(make_trainer, tmp_path, run):
    settings = RUNS[run] | {"max_steps": 5, "save_strategy": "steps", "save_steps": 1}
    settings |= {"logging_steps": 2, "token_stats_steps": 2}  # every other checkpoint falls between two logs
    whole = make_trainer(**settings, callbacks=[MetricsFile()])
    whole.train()
    assert len(whole.silenced_token_ids) > 0
    records = read_records(tmp_path / "run")
    for step in range(1, 5):
        shutil.copytree(tmp_path / "run", tmp_path / "resumed")
        # Other weights to begin with, except under an adapter, which is all that a checkpoint then holds
        changes = {"seed": int("peft_config" not in settings), "callbacks": [MetricsFile()]}
        resumed = make_trainer(output_dir=str(tmp_path / "resumed"), **settings | changes)
        resumed.train(resume_from_checkpoint=str(tmp_path / "run" / f"checkpoint-{step}"))
        torch.testing.assert_close(weights(resumed), weights(whole), rtol=0, atol=0)
        assert resumed.silenced_token_ids == whole.silenced_token_ids
        assert read_records(tmp_path / "resumed") == records
        shutil.rmtree(tmp_path / "resumed")


def test_steps_left_out_are_counted_on(make_trainer, tmp_path):
    def make():
        trainer = make_trainer(max_steps=2, save_strategy="steps", save_steps=1, on_nonfinite="skip")
        compute_loss = trainer.compute_loss
        trainer.compute_loss = lambda *args, **kwargs: compute_loss(*args, **kwargs) * torch.nan
        return trainer

    make().train()
    resumed = make()
    with pytest.warns(UserWarning, match="step 2 is not finite"):
        resumed.train(resume_from_checkpoint=str(tmp_path / "run" / "checkpoint-1"))
    counts = [entry["s2t/nonfinite_steps"] for entry in resumed.state.log_history if "s2t/nonfinite_steps" in entry]
    assert counts == [1, 2]


def test_saving_does_not_change_a_run_of_grpo(make_trainer):
    settings = RUNS["two steps per generation"] | {"max_steps": 4}
    grpo = make_trainer(GRPOTrainer, GRPOConfig, **settings)
    grpo.train()
    off = make_trainer(**settings, s2t_prob_threshold=0.0, save_strategy="steps", save_steps=1)
    off.train()
    torch.testing.assert_close(weights(off), weights(grpo), rtol=0, atol=0)


def test_grpo_trainer_does_not_resume_exactly_inside_a_generation(make_trainer, tmp_path):
    """Why this exists: if TRL has learnt it, it can go."""
    settings = RUNS["two steps per generation"] | {"max_steps": 4, "save_strategy": "steps", "save_steps": 1}
    whole = make_trainer(GRPOTrainer, GRPOConfig, **settings)
    whole.train()
    resumed = make_trainer(GRPOTrainer, GRPOConfig, **settings)
    resumed.train(resume_from_checkpoint=str(tmp_path / "run" / "checkpoint-1"))
    assert any((weights(resumed)[name] != value).any() for name, value in weights(whole).items())


@pytest.mark.parametrize(
    ("first", "second", "words"),
    [
        ({"trainer_class": GRPOTrainer, "config_class": GRPOConfig}, {}, "holds no generation batch"),
        ({}, {"num_generations": 8}, "'num_generations': 4.*'num_generations': 8"),
    ],
    ids=["of GRPOTrainer", "of other groups"],
)
def test_another_kind_of_checkpoint_goes_on_with_a_warning(make_trainer, tmp_path, first, second, words):
    settings = RUNS["two steps per generation"] | {"max_steps": 3, "save_strategy": "steps", "save_steps": 1}
    make_trainer(**first, **settings).train()
    resumed = make_trainer(**settings | second)
    with pytest.warns(UserWarning, match=words):
        resumed.train(resume_from_checkpoint=str(tmp_path / "run" / "checkpoint-1"))
    assert resumed.state.global_step == 3


def test_resuming_a_finished_run_makes_no_step_more(make_trainer):
    settings = {"max_steps": 2, "save_strategy": "steps", "save_steps": 1}
    whole = make_trainer(**settings)
    whole.train()
    resumed = make_trainer(**settings, seed=1)
    resumed.train(resume_from_checkpoint=True)
    assert resumed.state.global_step == 2
    torch.testing.assert_close(weights(resumed), weights(whole), rtol=0, atol=0)


# ---- Checkpoints that are not complete ------------------------------------------------------------------------------


@pytest.fixture
def run_of_three(make_trainer, tmp_path):
    """Three checkpoints, and a function that makes a trainer of the same run, which has one step more."""
    settings = {"max_steps": 3, "save_strategy": "steps", "save_steps": 1}
    make_trainer(**settings).train()
    return tmp_path / "run", lambda **more: make_trainer(**settings | {"max_steps": 4} | more)


def test_the_last_complete_checkpoint_is_the_one_whose_state_can_be_read(run_of_three):
    run, _ = run_of_three
    assert last_complete_checkpoint(run) == str(run / "checkpoint-3")
    state = (run / "checkpoint-3" / "trainer_state.json").read_bytes()
    for cut in (0, 1, len(state) // 2, len(state) - 3):
        (run / "checkpoint-3" / "trainer_state.json").write_bytes(state[:cut])
        assert last_complete_checkpoint(run) == str(run / "checkpoint-2")
    (run / "checkpoint-2" / "trainer_state.json").write_bytes(b"\xff\x00")
    (run / "checkpoint-10").mkdir()
    (run / "checkpoint-best").mkdir()
    (run / "checkpoint-11").write_text("no folder")
    assert last_complete_checkpoint(run) == str(run / "checkpoint-1")
    assert last_complete_checkpoint(run / "missing") is None


def test_resuming_passes_over_an_unfinished_checkpoint(run_of_three):
    run, make = run_of_three
    (run / "checkpoint-3" / "trainer_state.json").unlink()
    (run / "checkpoint-3" / "optimizer.pt").write_bytes(b"half")
    trainer = make()
    trainer.train(resume_from_checkpoint=True)
    assert trainer.state.global_step == 4 and trainer.state.log_history[2]["step"] == 3
    assert last_complete_checkpoint(run) == str(run / "checkpoint-4")


def test_an_unfinished_checkpoint_is_refused_by_name(run_of_three, tmp_path):
    run, make = run_of_three
    (run / "checkpoint-3" / "trainer_state.json").unlink()
    with pytest.raises(
        ValueError, match="checkpoint-3' is no complete checkpoint.*last complete one is .*checkpoint-2"
    ):
        make().train(resume_from_checkpoint=str(run / "checkpoint-3"))
    with pytest.raises(ValueError, match="no complete checkpoint in .*elsewhere"):
        make(output_dir=str(tmp_path / "elsewhere")).train(resume_from_checkpoint=True)


def test_an_unfinished_checkpoint_never_costs_the_last_complete_one(run_of_three):
    run, make = run_of_three
    (run / "checkpoint-3" / "trainer_state.json").unlink()
    (run / "checkpoint-7").mkdir()
    trainer = make(save_total_limit=1)
    seen, save_model = [], trainer.save_model

    def look_and_save(*args, **kwargs):
        seen.append(last_complete_checkpoint(run))
        save_model(*args, **kwargs)

    trainer.save_model = look_and_save
    trainer.train(resume_from_checkpoint=True)
    assert seen == [str(run / "checkpoint-2"), str(run / "checkpoint-3")]
    assert [folder.name for folder in run.glob("checkpoint-*")] == ["checkpoint-4"]


def test_a_checkpoint_is_not_complete_while_it_is_written_again(run_of_three, monkeypatch):
    run, make = run_of_three
    seen = []
    trainer = make(max_steps=2)
    save_model = trainer.save_model
    trainer.save_model = lambda *args, **kwargs: (
        seen.append(last_complete_checkpoint(run)),
        save_model(*args, **kwargs),
    )
    (run / "checkpoint-3" / "trainer_state.json").unlink()
    trainer.train(resume_from_checkpoint=str(run / "checkpoint-1"))
    assert seen == [str(run / "checkpoint-1")]


def test_a_run_killed_right_after_its_checkpoint_was_complete_keeps_its_token_log(make_trainer, tmp_path):
    class Killed(TrainerCallback):
        def on_save(self, args, state, control, **kwargs):
            raise KeyboardInterrupt

    settings = {"max_steps": 2, "save_strategy": "steps", "save_steps": 2}
    trainer = make_trainer(**settings)
    trainer.callback_handler.callbacks.insert(0, Killed())  # before any other callback hears of the checkpoint
    with pytest.raises(KeyboardInterrupt):
        trainer.train()
    assert last_complete_checkpoint(tmp_path / "run") == str(tmp_path / "run" / "checkpoint-2")
    assert set(read_token_log(tmp_path / "run")["step"].to_pylist()) == {1, 2}


def test_every_file_is_written_before_the_state_that_makes_it_complete(run_of_three):
    run, _ = run_of_three
    times = {file.name: file.stat().st_mtime_ns for file in (run / "checkpoint-3").iterdir()}
    assert {"generation_0.pt", "optimizer.pt", "rng_state.pth", "model.safetensors"} < times.keys()
    assert max(times, key=times.get) == "trainer_state.json"


def test_a_checkpoint_of_the_model_alone_goes_on_with_a_warning(make_trainer):
    settings = {"max_steps": 2, "save_strategy": "steps", "save_steps": 1, "save_only_model": True}
    make_trainer(**settings).train()
    resumed = make_trainer(**settings | {"max_steps": 3})
    with pytest.warns(UserWarning, match="holds no generation batch.*does not continue exactly"):
        resumed.train(resume_from_checkpoint=True)
    assert resumed.state.global_step == 3


# ---- Faults ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("file", ["config.json", "optimizer.pt", "scheduler.pt", "rng_state.pth", "generation_0.pt"])
def test_a_full_disk_stops_with_a_sentence_and_leaves_the_last_checkpoint_whole(make_trainer, tmp_path, file):
    settings = {"max_steps": 3, "save_strategy": "steps", "save_steps": 1}
    whole = make_trainer(**settings | {"save_strategy": "no"})
    whole.train()
    full = tmp_path / "run" / "checkpoint-2" / file
    full.parent.mkdir(parents=True)
    full.symlink_to("/dev/full")
    with pytest.raises((OSError, RuntimeError)) as error:
        make_trainer(**settings).train()
    notes = error.value.__notes__
    assert notes[0].startswith("The checkpoint of step 2 could not be saved (") and notes[0].endswith("MiB are free).")
    goes_on = f"resume_from_checkpoint=True goes on from {tmp_path}/run/checkpoint-1."
    assert notes[1:] == [f"Training stopped after step 2; {goes_on}"]
    full.unlink()
    resumed = make_trainer(**settings)
    resumed.train(resume_from_checkpoint=True)
    torch.testing.assert_close(weights(resumed), weights(whole), rtol=0, atol=0)


@pytest.fixture
def small_disk(tmp_path):
    """A function that mounts a disk of some KiB in the run's folder, or gives it another size."""
    disk = tmp_path / "run"
    disk.mkdir()

    def resize(kibibytes):
        options = f"{'remount,' if os.path.ismount(disk) else ''}size={kibibytes}k"
        if subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", disk], capture_output=True).returncode:
            pytest.skip("a disk can only be mounted by root")

    yield resize
    if os.path.ismount(disk):
        subprocess.run(["umount", "--lazy", disk], check=True)  # torch leaves the file open that it could not write


# A checkpoint has 400 KiB of weights and 800 KiB of optimizer
@pytest.mark.skipif(shutil.which("mount") is None, reason="no mount on this system")
@pytest.mark.parametrize("kibibytes", [1500, 2000])
def test_a_disk_that_fills_up_while_a_checkpoint_is_written_damages_no_other(
    make_trainer, tmp_path, small_disk, kibibytes
):
    settings = {"max_steps": 3, "save_strategy": "steps", "save_steps": 1}
    whole = make_trainer(**settings | {"save_strategy": "no", "output_dir": str(tmp_path / "whole")})
    whole.train()
    small_disk(kibibytes)
    with pytest.raises(Exception) as error:  # of the library that was writing
        make_trainer(**settings).train()
    assert error.value.__notes__[0] == "The checkpoint of step 2 could not be saved (0 MiB are free)."
    assert error.value.__notes__[1].endswith(f"goes on from {tmp_path}/run/checkpoint-1.")
    small_disk(20_000)
    resumed = make_trainer(**settings)
    resumed.train(resume_from_checkpoint=True)
    torch.testing.assert_close(weights(resumed), weights(whole), rtol=0, atol=0)
    assert last_complete_checkpoint(tmp_path / "run") == str(tmp_path / "run" / "checkpoint-3")


def test_a_state_that_was_cut_off_by_a_full_disk_makes_no_checkpoint(make_trainer, tmp_path, monkeypatch):
    save = TrainerState.save_to_json

    def cut_off(self, path):
        save(self, path)
        if self.global_step == 2:
            os.truncate(path, 100)
            raise OSError(errno.ENOSPC, "No space left on device", path)

    monkeypatch.setattr(TrainerState, "save_to_json", cut_off)
    with pytest.raises(OSError, match="No space left") as error:
        make_trainer(max_steps=3, save_strategy="steps", save_steps=1, save_total_limit=1).train()
    assert error.value.__notes__[1].endswith(f"goes on from {tmp_path}/run/checkpoint-1.")


def test_a_file_in_the_place_of_a_checkpoint_stops_with_a_sentence(make_trainer, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "checkpoint-2").write_text("no folder")
    with pytest.raises(OSError, match="checkpoint-2") as error:
        make_trainer(max_steps=3, save_strategy="steps", save_steps=1).train()
    assert error.value.__notes__[-1].endswith(f"goes on from {tmp_path}/run/checkpoint-1.")


@pytest.mark.slow
def test_a_recipe_killed_again_and_again_ends_as_one_that_was_left_alone(tmp_path):
    script = Path(__file__).parent / "killed_recipe.py"
    command = [sys.executable, str(script), str(tmp_path)]
    process = subprocess.run(command, capture_output=True, text=True, timeout=280, env={**os.environ, "CI": "1"})
    assert process.returncode == 0, process.stdout[-3000:] + process.stderr[-6000:]
    assert "the same weights, metrics and token log" in process.stdout


class InterruptAt(TrainerCallback):
    """Sends this process a signal in the middle of a step, as Ctrl-C or a scheduler does."""

    def __init__(self, step, number):
        self.step, self.number = step, number

    def on_step_begin(self, args, state, control, **kwargs):
        if state.global_step == self.step:
            os.kill(os.getpid(), self.number)


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
