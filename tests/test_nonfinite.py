"""A gradient that is not finite stops the run, or is left out without a trace, on every process alike."""

import pytest
import torch
from toys import SHAPES, weights

from stapo_trl import STAPOConfig


def spoil(trainer, step: int, value: float = torch.nan):
    """The loss of one micro-batch of this step is multiplied by a value that is not finite."""
    compute_loss = trainer.compute_loss

    def spoiled(*args, **kwargs):
        loss = compute_loss(*args, **kwargs)
        return loss * value if trainer.state.global_step + 1 == step else loss

    trainer.compute_loss = spoiled
    return trainer


@pytest.mark.parametrize("shape", ["one micro-batch", "accumulation"])
@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_by_default_the_run_stops_before_the_weights_change(make_trainer, shape, value):
    whole = make_trainer(**SHAPES[shape], max_steps=1)
    whole.train()
    trainer = spoil(make_trainer(**SHAPES[shape], max_steps=3), step=2, value=value)
    with pytest.raises(RuntimeError, match="The gradient of step 2 is not finite"):
        trainer.train()
    torch.testing.assert_close(weights(trainer), weights(whole), rtol=0, atol=0)


@pytest.mark.parametrize("max_grad_norm", [1.0, 0.0])
def test_a_step_that_is_left_out_changes_neither_weights_nor_optimizer(make_trainer, max_grad_norm):
    settings = {"max_grad_norm": max_grad_norm, "optim": "adamw_torch", "weight_decay": 0.1}
    whole = make_trainer(max_steps=1, **settings)
    whole.train()
    trainer = spoil(make_trainer(max_steps=2, on_nonfinite="skip", **settings), step=2)
    with pytest.warns(UserWarning, match="step 2 is not finite .grad_norm nan.: the step is left out"):
        trainer.train()
    torch.testing.assert_close(weights(trainer), weights(whole), rtol=0, atol=0)
    states = [list(x.optimizer.state_dict()["state"].values()) for x in (trainer, whole)]
    torch.testing.assert_close(states[0], states[1], rtol=0, atol=0)
    assert [entry["s2t/nonfinite_steps"] for entry in trainer.state.log_history if "s2t/nonfinite_steps" in entry] == [
        1
    ]


def test_a_step_may_be_taken_with_a_warning(make_trainer):
    trainer = spoil(make_trainer(max_steps=1, on_nonfinite="warn"), step=1)
    with pytest.warns(UserWarning, match="the step is taken"):
        trainer.train()
    assert not all(value.isfinite().all() for value in weights(trainer).values())


def test_a_finite_run_does_not_depend_on_the_setting(make_trainer):
    found = []
    for setting in ("raise", "skip", "warn"):
        trainer = make_trainer(on_nonfinite=setting)
        trainer.train()
        found.append(weights(trainer))
        assert not any("s2t/nonfinite_steps" in entry for entry in trainer.state.log_history)
    torch.testing.assert_close(found[0], found[1], rtol=0, atol=0)
    torch.testing.assert_close(found[0], found[2], rtol=0, atol=0)


def test_other_settings_are_refused(tmp_path):
    with pytest.raises(ValueError, match="`on_nonfinite` must be one of"):
        STAPOConfig(str(tmp_path), on_nonfinite="ignore")
