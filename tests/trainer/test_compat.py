"""Contract with TRL: each private fact that the trainer leans on, so that a new release fails here and not in a run."""

import importlib.metadata
import inspect
import re
import subprocess
import sys

import pytest
import torch
from peft import LoraConfig
from toys import make_inputs, score
from transformers import Trainer
from trl import GRPOConfig, GRPOTrainer

from stapo_trl.trainer import compat


def source(name: str) -> str:
    return inspect.getsource(inspect.unwrap(getattr(GRPOTrainer, name)))


def test_the_installed_trl_has_the_hooks():
    compat.check_base_trainer(GRPOTrainer)


def test_the_tested_window_is_the_one_of_the_package_metadata():
    from importlib.metadata import requires

    (trl,) = [line for line in requires("stapo-trl") if re.match(r"trl[<>=]", line)]
    assert set(trl.removeprefix("trl").split(",")) == set(compat.TESTED_TRL.split(","))


def test_a_missing_or_changed_hook_is_refused_by_name():
    class Renamed(GRPOTrainer):
        _compute_loss = None

    class Changed(GRPOTrainer):
        def _prepare_inputs(self, batch):
            pass

    with pytest.raises(RuntimeError, match=r"_prepare_inputs.*\['self', 'batch'\].*install trl>=1.16,<1.17"):
        compat.check_base_trainer(Changed)
    Renamed.compute_loss = lambda self: None
    with pytest.raises(RuntimeError, match="GRPOTrainer.*compute_loss"):
        compat.check_base_trainer(Renamed)


def test_unsloth_is_refused(monkeypatch):
    patched = type("GRPOTrainer", (GRPOTrainer,), {"__module__": "unsloth_compiled_cache.UnslothGRPOTrainer"})
    with pytest.raises(RuntimeError, match="Unsloth"):
        compat.check_base_trainer(patched)
    monkeypatch.setitem(sys.modules, "unsloth", object())
    with pytest.raises(RuntimeError, match="Unsloth"):
        compat.check_base_trainer(GRPOTrainer)


def test_importing_the_package_imports_neither_torch_nor_trl():
    code = "import stapo_trl, stapo_trl.cli, sys; assert not {'torch', 'trl', 'transformers'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_trainer_imports_without_optional_packages():
    missing = ["peft", "deepspeed", "vllm", "matplotlib", "math_verify"]
    code = f"import sys; sys.modules |= dict.fromkeys({missing}); from stapo_trl import STAPOConfig, STAPOTrainer"
    subprocess.run([sys.executable, "-c", code], check=True)


# ---- What a signature does not show ---------------------------------------------------------------------------------


def test_the_loss_mask_is_completion_mask_times_tool_mask(make_trainer):
    trainer = make_trainer(GRPOTrainer, GRPOConfig, loss_type="bnpo")
    trainer.current_gradient_accumulation_steps = 1
    batch = make_inputs(4, 6)
    keep = (torch.arange(6) % 2 == 0).long().expand(4, 6)
    loss = trainer._compute_loss(trainer.model, {**batch, "tool_mask": keep})
    mask = batch["completion_mask"] * keep
    # The ratio to the same policy is 1, so the loss is minus the mean advantage over the mask
    expected = -(batch["advantages"][:, None] * mask).sum() / mask.sum()
    torch.testing.assert_close(loss, expected)


def test_token_normalised_losses_divide_by_num_items_in_batch(make_trainer):
    trainer = make_trainer(GRPOTrainer, GRPOConfig, loss_type="dapo")
    trainer.current_gradient_accumulation_steps = 1
    batch = make_inputs(4, 6)
    whole = trainer._compute_loss(trainer.model, batch)
    half = trainer._compute_loss(trainer.model, {**batch, "num_items_in_batch": batch["num_items_in_batch"] / 2})
    torch.testing.assert_close(half, 2 * whole)


def test_the_loss_makes_one_forward_and_asks_for_entropies():
    assert source("_compute_loss").count("self._get_per_token_logps_and_entropies(") == 1
    assert "compute_entropy=True" in source("_compute_loss")


def test_compute_loss_is_the_private_loss_and_nothing_else():
    body = source("compute_loss")
    assert "return self._compute_loss(model, inputs)" in body and "num_items_in_batch=None" in body


def test_prepare_inputs_reads_the_step_counter_and_the_models_mode():
    body = source("_prepare_inputs")
    for fact in ("self._step % generate_every", "self._buffered_inputs[self._step %", "self.model.training"):
        assert fact in body


def test_old_log_probs_are_handed_on_as_they_were_computed():
    body = source("_generate_and_score_completions")
    assert 'output["old_per_token_logps"] = old_per_token_logps' in body
    assert (
        "old_per_token_logps, _, _ = self._get_per_token_logps_and_entropies(\n                    self.model," in body
    )


def test_masked_positions_hold_zero(make_trainer):
    trainer, batch = make_trainer(), make_inputs(4, 6)
    logps, entropies = score(trainer, batch)
    padding = batch["completion_mask"] == 0
    assert padding.any() and (logps[padding] == 0).all() and (entropies[padding] == 0).all()
    assert logps.dtype == entropies.dtype == torch.float32


def test_the_temperature_is_applied_to_log_probs_and_entropies(make_trainer):
    batch = make_inputs(4, 6)
    for temperature in (0.6, 1.0):
        trainer = make_trainer(temperature=temperature)
        logps, entropies = score(trainer, batch)
        with torch.no_grad():
            ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], 1)
            mask = torch.cat([batch["prompt_mask"], batch["completion_mask"]], 1)
            logits = trainer.model(input_ids=ids, attention_mask=mask).logits[:, 2:-1] / temperature
        expected = logits.log_softmax(-1)
        valid = batch["completion_mask"].bool()
        sampled = expected.gather(-1, batch["completion_ids"][..., None]).squeeze(-1)
        torch.testing.assert_close(logps[valid], sampled[valid])
        torch.testing.assert_close(entropies[valid], -(expected.exp() * expected).sum(-1)[valid])


@pytest.mark.parametrize("name", ["datasets", "pyarrow", "trl"])
def test_a_package_that_was_upgraded_under_the_session_is_told(monkeypatch, name):
    monkeypatch.setattr(sys.modules[name], "__version__", "0.1")
    with pytest.warns(UserWarning, match=f"{name} 0.1 was imported before .* was installed: restart the session"):
        compat.check_environment(uses_peft=False)


def test_packages_of_this_session_raise_no_warning(recwarn):
    compat.check_environment(uses_peft=True)
    assert not recwarn.list


def test_a_torchao_that_peft_refuses_is_refused_with_what_to_do(monkeypatch, make_trainer):
    import peft.import_utils

    def refuse():
        raise ImportError("Found an incompatible version of torchao. Found version 0.10.0.")

    monkeypatch.setattr(peft.import_utils, "is_torchao_available", refuse)
    with pytest.raises(RuntimeError, match="Found version 0.10.0. Run `pip uninstall -y torchao`"):
        make_trainer(peft_config=LoraConfig(target_modules=["q_proj"]))
    make_trainer()


def test_what_is_installed_by_default_needs_no_gpu_package():
    metadata = importlib.metadata.metadata("stapo-trl")
    assert metadata["Requires-Python"] == ">=3.11"
    required = [line for line in importlib.metadata.requires("stapo-trl") if "extra ==" not in line]
    assert not [line for line in required if line.startswith(("vllm", "deepspeed", "bitsandbytes", "wandb"))]
    assert any(line.startswith("datasets>=4.7") for line in required)


def test_the_random_state_is_loaded_after_the_first_batches_were_drawn_and_saved_before_the_trainers_state():
    run_epoch, save = (inspect.getsource(getattr(Trainer, name)) for name in ("_run_epoch", "_save_checkpoint"))
    assert run_epoch.index("self.get_batch_samples(") < run_epoch.rindex("self._load_rng_state(")
    order = [save.index(call) for call in ("self.save_model(", "self._save_rng_state(", "TRAINER_STATE_NAME")]
    assert order == sorted(order) and save.index("TRAINER_STATE_NAME") < save.index("rotate_checkpoints(")


def test_the_loss_since_the_last_log_is_kept_where_it_is_restored():
    log = inspect.getsource(Trainer._maybe_log_save_evaluate)
    assert "self.state.global_step - self._globalstep_last_logged" in log
    assert log.index("self.log(") < log.index("self._save_checkpoint(")
    assert "self._tr_loss += tr_loss_step" in inspect.getsource(Trainer._run_epoch)
    assert "self._metrics[mode]" in source("log")
