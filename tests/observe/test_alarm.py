"""The alarm rings when a run leaves its own band, in both directions, and not before."""

import math
import warnings

import pytest
from transformers import TrainerControl, TrainerState

from stapo_trl.observe.alarm import EntropyAlarm
from stapo_trl.observe.token_log import TokenLog


def ring(entries: list[dict], history=(), **settings) -> tuple[list[str], TrainerControl]:
    """Messages of the alarm over a run of these log entries, and the control it leaves behind."""
    alarm, control = EntropyAlarm(**settings), TrainerControl()
    state = TrainerState(log_history=list(history), is_world_process_zero=True)
    alarm.on_train_begin(None, state, control)
    messages = []
    for step, entry in enumerate(entries, start=1):
        state.global_step = step
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            alarm.on_log(None, state, control, logs=entry)
        messages += [str(warning.message) for warning in caught]
    return messages, control


def entropies(*values: float) -> list[dict]:
    return [{"s2t/entropy": value} for value in values]


SHORT = {"level_steps": 4, "patience": 3}


def test_a_run_inside_its_band_raises_nothing():
    messages, control = ring(entropies(1.0, 1.2, 0.8, 1.0, 0.5, 1.9, 0.3, 1.0), **SHORT)
    assert messages == [] and not control.should_save


@pytest.mark.parametrize(("value", "words"), [(0.1, "Entropy collapses"), (2.5, "Entropy explodes")])
def test_both_directions_raise_an_alarm_after_the_patience(value, words):
    messages, _ = ring(entropies(*[1.0] * 4, value, value), **SHORT)
    assert messages == []
    (message,) = ring(entropies(*[1.0] * 4, value, value, value), **SHORT)[0]
    assert (
        message.startswith(f"Step 7: {words}: entropy is {value} nats")
        and "level of 1 in the first 4 steps" in message
    )


def test_one_step_back_in_the_band_starts_the_patience_again():
    assert ring(entropies(*[1.0] * 4, 3.0, 3.0, 1.0, 3.0, 3.0), **SHORT)[0] == []


def test_an_alarm_is_raised_once_and_again_after_the_run_came_back():
    assert len(ring(entropies(*[1.0] * 4, *[3.0] * 9), **SHORT)[0]) == 1
    assert len(ring(entropies(*[1.0] * 4, *[3.0] * 4, 1.0, *[3.0] * 4), **SHORT)[0]) == 2


def test_no_alarm_about_entropy_before_the_level_is_made():
    assert ring(entropies(1.0, 9.0, 9.0, 9.0), level_steps=20, patience=1)[0] == []


def test_a_resumed_run_keeps_its_level():
    history = entropies(*[1.0] * 4)
    assert len(ring(entropies(3.0, 3.0, 3.0), history, **SHORT)[0]) == 1


def test_trls_entropy_serves_where_ours_is_absent():
    assert len(ring([{"entropy": x} for x in (*[1.0] * 4, *[0.1] * 3)], **SHORT)[0]) == 1


@pytest.mark.parametrize(
    ("action", "save", "stop"), [("warn", False, False), ("save", True, False), ("stop", True, True)]
)
def test_the_action_is_taken(action, save, stop):
    _, control = ring(entropies(*[1.0] * 4, *[3.0] * 3), action=action, **SHORT)
    assert (control.should_save, control.should_training_stop) == (save, stop)


def test_truncation_without_a_spread_of_rewards_raises_an_alarm():
    entry = {"completions/clipped_ratio": 1.0, "frac_reward_zero_std": 1.0}
    (message,) = ring([entry] * 3, **SHORT)[0]
    assert "100 % of the completions are cut off" in message and "max_completion_length" in message
    assert ring([entry | {"frac_reward_zero_std": 0.5}] * 9, **SHORT)[0] == []


@pytest.mark.parametrize("entry", [{"s2t/nonfinite": 3.0}, {"grad_norm": math.nan}, {"loss": math.inf}])
def test_what_is_not_finite_raises_an_alarm_at_once(entry):
    assert "Not finite" in ring([entry], **SHORT)[0][0]


def test_an_entropy_that_is_not_finite_does_not_enter_the_level():
    assert len(ring(entropies(math.nan, *[1.0] * 4, *[3.0] * 3), **SHORT)[0]) == 1


def test_the_message_shows_the_tokens_and_no_control_character_of_theirs(tmp_path):
    class Trainer:
        token_log = TokenLog(tmp_path)

    row = {"step": 6, "before": "so\n", "token": "\x1b[31m", "prob": 1e-4, "entropy": 0.1, "advantage": 0.5}
    Trainer.token_log.add([row | {"silenced": True, "candidate": True}], [])
    (message,) = ring(entropies(*[1.0] * 4, *[3.0] * 3), trainer=Trainer(), **SHORT)[0]
    assert "so↵ >>␛[31m<< probability 0.0001" in message and "silenced" in message and "\x1b" not in message


@pytest.mark.parametrize("settings", [{"lowest": 1.5}, {"highest": 0.9}, {"patience": 0}, {"action": "shout"}])
def test_settings_that_make_no_sense_are_refused(settings):
    with pytest.raises(ValueError, match="got"):
        EntropyAlarm(**settings)


def test_it_watches_a_real_run(make_trainer):
    trainer = make_trainer(max_steps=4, learning_rate=5e-2)
    trainer.add_callback(EntropyAlarm(trainer, lowest=0.999, highest=1.001, level_steps=1, patience=2, action="stop"))
    with pytest.warns(UserWarning, match="The last improbable tokens of correct responses"):
        trainer.train()
    assert trainer.state.global_step == 3
