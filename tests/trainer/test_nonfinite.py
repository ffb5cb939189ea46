"""A step that is not finite stops the run, or is left out without a trace, however it is cut."""

import inspect
import math

import pytest
import torch
from toys import SHAPES, weights
from transformers import Trainer

from stapo_trl import STAPOConfig


ADAMW = {"optim": "adamw_torch", "weight_decay": 0.1, "max_steps": 3}
NOT_FINITE = {
    "NaN": lambda loss: loss * math.nan,
    "infinity": lambda loss: loss * math.inf,
    "infinity with a finite gradient": lambda loss: loss + math.inf,
}


def spoil(trainer, step: int, change, micro_batch: int = 0):
    """Changes the loss of one micro-batch of one optimizer step, both counted from 1 and 0."""
    compute_loss, calls = trainer._compute_loss, []

    def spoiled(model, inputs):
        loss = compute_loss(model, inputs)
        calls.append(None)
        accumulation = trainer.args.gradient_accumulation_steps
        return change(loss) if len(calls) - 1 == (step - 1) * accumulation + micro_batch else loss

    trainer._compute_loss = spoiled
    return trainer


def spoil_gradient(loss):
    loss.register_hook(lambda gradient: gradient * math.nan)
    return loss


def record_states(trainer) -> list[tuple]:
    """Weights and the optimizer's state after every step."""
    states, log = [], trainer.log

    def recorded(logs, *args):
        if "grad_norm" in logs:
            moments = trainer.optimizer.state_dict()["state"]
            moments = {key: {name: x.clone() for name, x in state.items()} for key, state in moments.items()}
            states.append((weights(trainer), moments))
        log(logs, *args)

    trainer.log = recorded
    return states


def logged_counts(trainer) -> list[float]:
    return [entry["s2t/nonfinite_steps"] for entry in trainer.state.log_history if "s2t/nonfinite_steps" in entry]


@pytest.mark.parametrize("tau", [0.039, 0.0])
@pytest.mark.parametrize("change", NOT_FINITE.values(), ids=NOT_FINITE)
@pytest.mark.parametrize(("shape", "micro_batch"), [("one micro-batch", 0), ("accumulation", 1)])
def test_by_default_the_run_stops_before_the_weights_change(make_trainer, shape, micro_batch, change, tau):
    trainer = make_trainer(**SHAPES[shape] | ADAMW, s2t_prob_threshold=tau)
    states = record_states(spoil(trainer, 2, change, micro_batch))
    with pytest.raises(RuntimeError, match="The loss of step 2 is not finite; the weights are still"):
        trainer.train()
    assert len(states) == trainer.state.global_step == 1
    torch.testing.assert_close(weights(trainer), states[0][0], rtol=0, atol=0)


@pytest.mark.parametrize("change", NOT_FINITE.values(), ids=NOT_FINITE)
@pytest.mark.parametrize(("shape", "micro_batch"), [("one micro-batch", 0), ("accumulation", 1)])
def test_a_step_that_is_left_out_changes_neither_weights_nor_optimizer(make_trainer, shape, micro_batch, change):
    trainer = make_trainer(**SHAPES[shape] | ADAMW, on_nonfinite="skip")
    states = record_states(spoil(trainer, 2, change, micro_batch))
    with pytest.warns(UserWarning, match="step 2 is not finite: the step is skipped .1 so far"):
        trainer.train()
    first, skipped, third = states
    torch.testing.assert_close(skipped, first, rtol=0, atol=0)
    assert any((third[0][name] != value).any() for name, value in skipped[0].items())
    assert all(value.isfinite().all() for value in third[0].values())
    assert logged_counts(trainer) == [1, 1]


@pytest.mark.parametrize("max_grad_norm", [1.0, 0.0])
def test_a_gradient_that_is_not_finite_is_left_out_though_the_loss_is_finite(make_trainer, max_grad_norm):
    trainer = make_trainer(**ADAMW, on_nonfinite="skip", max_grad_norm=max_grad_norm)
    states = record_states(spoil(trainer, 2, spoil_gradient))
    with pytest.warns(UserWarning, match="The gradient of step 2 is not finite: the step is skipped"):
        trainer.train()
    torch.testing.assert_close(states[1], states[0], rtol=0, atol=0)


def test_a_step_may_be_taken_with_a_warning(make_trainer):
    trainer = spoil(make_trainer(max_steps=1, on_nonfinite="warn"), 1, NOT_FINITE["NaN"])
    with pytest.warns(UserWarning, match="the step is taken"):
        trainer.train()
    assert not all(value.isfinite().all() for value in weights(trainer).values())
    assert logged_counts(trainer) == [1]


def test_the_count_of_several_steps_in_one_log_is_the_last(make_trainer):
    trainer = make_trainer(max_steps=2, on_nonfinite="skip", logging_steps=2)
    compute_loss = trainer._compute_loss
    trainer._compute_loss = lambda *args: compute_loss(*args) * math.nan
    with pytest.warns(UserWarning, match="2 so far"):
        trainer.train()
    assert logged_counts(trainer) == [2]


def test_a_finite_run_does_not_depend_on_the_setting(make_trainer):
    found = []
    for setting in ("raise", "skip", "warn"):
        trainer = make_trainer(on_nonfinite=setting)
        trainer.train()
        found.append(weights(trainer))
        assert logged_counts(trainer) == []
    torch.testing.assert_close(found[0], found[1], rtol=0, atol=0)
    torch.testing.assert_close(found[0], found[2], rtol=0, atol=0)


def test_under_fp16_an_infinite_gradient_is_left_to_the_loss_scaler_and_the_loss_counts(make_trainer):
    trainer = make_trainer(fp16=True)
    norm = torch.tensor(math.inf)
    assert trainer._get_grad_norm(trainer.model, norm) is norm
    trainer._num_nonfinite_losses = torch.tensor(1)
    with pytest.raises(RuntimeError, match="The loss of step 1"):
        trainer._get_grad_norm(trainer.model, norm)


@pytest.mark.parametrize("on_nonfinite", ["raise", "skip"])
def test_a_deepspeed_that_takes_such_a_step_stops_the_run_and_says_so(make_trainer, on_nonfinite):
    trainer = make_trainer(on_nonfinite=on_nonfinite)
    trainer.is_deepspeed_enabled = True
    with pytest.raises(
        RuntimeError, match="of step 1 is not finite, and DeepSpeed has taken it: resume from the last"
    ):
        trainer._get_grad_norm(trainer.model, torch.tensor(math.nan))


@pytest.mark.parametrize("max_grad_norm", [1.0, 0.0])
def test_the_loss_scaler_takes_a_step_without_gradients(make_trainer, max_grad_norm):
    """With a scaler as on a GPU, which asks whether the gradients were looked at."""
    trainer = make_trainer(**ADAMW, fp16=True, on_nonfinite="skip", max_grad_norm=max_grad_norm)
    trainer.accelerator.scaler, trainer.accelerator.native_amp = torch.amp.GradScaler("cpu"), True
    states = record_states(spoil(trainer, 2, NOT_FINITE["infinity with a finite gradient"]))
    with pytest.warns(UserWarning, match="The loss of step 2 is not finite: the step is skipped"):
        trainer.train()
    torch.testing.assert_close(states[1], states[0], rtol=0, atol=0)
    assert any((states[2][0][name] != value).any() for name, value in states[1][0].items())


def test_evaluation_counts_for_nothing(make_trainer, dataset):
    trainer = make_trainer(eval_dataset=dataset.select(range(2)), per_device_eval_batch_size=8)
    spoil(trainer, 1, NOT_FINITE["NaN"]).evaluate()
    assert trainer._num_nonfinite_losses == trainer._num_nonfinite_steps == 0


def test_the_training_loop_asks_for_the_norm_right_before_the_update():
    loop = inspect.getsource(Trainer._run_epoch)
    norm, update = loop.index("self._get_grad_norm("), loop.index("self.optimizer.step()")
    assert loop.index("self.training_step(") < norm < update and loop.count("self._get_grad_norm(") == 1


def test_other_settings_are_refused(tmp_path):
    with pytest.raises(ValueError, match="`on_nonfinite` must be one of"):
        STAPOConfig(str(tmp_path), on_nonfinite="ignore")
