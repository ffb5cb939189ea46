"""
Run by `test_engines.py`: two gloo processes under DDP, FSDP2 or DeepSpeed, against one process.

    accelerate launch --config_file accelerate_configs/cpu/fsdp2.yaml tests/trainer/engines.py FSDP reference.pt

A failed check raises, so the process exits non-zero. A missing collective runs into the short timeout or, where the
engine sets its own, into the watchdog, which prints where the process hangs.
"""

import faulthandler
import os
import sys
import tempfile
from pathlib import Path


sys.path.insert(0, str(Path(__file__).parents[1]))

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from accelerate import PartialState  # noqa: E402
from accelerate.state import AcceleratorState  # noqa: E402
from accelerate.utils import DistributedType  # noqa: E402
from peft import LoraConfig  # noqa: E402
from safetensors.torch import load_file  # noqa: E402
from toys import TOY_PROB_THRESHOLD, find_silenced, record_steps, reference_keep_mask  # noqa: E402
from two_processes import fixed_completions, make_trainer  # noqa: E402

from stapo_trl import cli
from stapo_trl.arithmetic import warm_start
from stapo_trl.arithmetic.warm_start import build_model, build_tokenizer


NUM_PARAMETERS = build_model().num_parameters()
PATIENCE = 60  # seconds for a scenario that takes about one
ONE = {"per_device_train_batch_size": 4}
SEVERAL = {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 2}
LORA = {"peft_config": LoraConfig(target_modules=["q_proj", "v_proj"], r=4, init_lora_weights=False)}
# Silences what no rounding can change
FULL_MASK = {"s2t_prob_threshold": 0.999, "s2t_entropy_quantile": 1.0}

# name: (settings of the trainer, what is peculiar about the completions of the second half of each generation)
SCENARIOS = {
    "one micro-batch": (ONE, None),
    "several micro-batches": (SEVERAL, None),
    "every response scored": (SEVERAL | {"s2t_entropy_population": "all"}, None),
    "gradient checkpointing": (SEVERAL | {"gradient_checkpointing": True}, None),
    "LoRA": (SEVERAL | LORA, None),
    "LoRA, gradient checkpointing": (SEVERAL | LORA | {"gradient_checkpointing": True}, None),
    "bf16": (SEVERAL | {"bf16": True}, None),
    "bf16, every token of positive rows": (ONE | {"bf16": True} | FULL_MASK, None),
    "no positive row": (SEVERAL, "equal rewards"),
    "no positive row, one micro-batch": (ONE, "equal rewards"),
    "no candidate": (SEVERAL, "greedy"),
    "padding alone": (SEVERAL | {"mask_truncated_completions": True}, "no end"),
    "padding alone, one micro-batch": (ONE | {"mask_truncated_completions": True}, "no end"),
}


def shard_on_cpu():
    """Accelerate takes FSDP for DDP where it finds no accelerator: let it believe that it found one."""
    init = PartialState.__init__

    def promoted(self, *args, **kwargs):
        init(self, *args, **kwargs)
        if self._shared_state.get("distributed_type") == DistributedType.MULTI_CPU:
            self._shared_state["distributed_type"] = DistributedType.MULTI_GPU

    PartialState.__init__ = promoted


def full_weights(trainer) -> dict[str, torch.Tensor]:
    """Copies of all parameters, whole, on every process."""
    weights = {}
    for name, parameter in trainer.model.named_parameters():
        if hasattr(parameter, "full_tensor"):
            parameter = parameter.full_tensor()
        if hasattr(parameter, "ds_id"):
            import deepspeed

            with deepspeed.zero.GatheredParameters([parameter]):
                weights[name] = parameter.detach().clone()
        else:
            weights[name] = parameter.detach().clone()
    return weights


def run_scenario(name: str, num_processes: int) -> dict:
    """Two steps on a fixed stream of completions: what was silenced here, what every window held, the whole weights."""
    AcceleratorState._reset_state()
    settings, odd_rows = SCENARIOS[name]
    settings = settings | {
        "gradient_accumulation_steps": settings.get("gradient_accumulation_steps", 1) * 2 // num_processes
    }
    first_row = 4 * int(os.environ.get("RANK", 0))

    def reward(completion_ids, **kwargs):
        rows = range(first_row, first_row + len(completion_ids))
        rewards = [(7 * sum(ids) + row) % 5 - 2.0 for row, ids in zip(rows, completion_ids, strict=True)]
        return [1.0 if odd_rows == "equal rewards" and row >= 4 else r for row, r in zip(rows, rewards, strict=True)]

    trainer = make_trainer(reward_funcs=reward, generation_kwargs={"do_sample": False}, **settings)
    fixed_completions(trainer, odd_rows)
    steps = record_steps(trainer)
    before = full_weights(trainer)
    trainer.train()
    return {
        "type": trainer.accelerator.distributed_type,
        "silenced": find_silenced(steps),
        "steps": [describe_step(*step) for step in steps],
        "update": {name: value - before[name] for name, value in full_weights(trainer).items()},
        "metrics": [
            {key: value for key, value in entry.items() if key.startswith("s2t/")}
            for entry in trainer.state.log_history
        ],
    }


def describe_step(inputs: list[dict], scores: list[tuple], step) -> dict[str, torch.Tensor]:
    """The numbers from which this process decided in an optimizer step, and what it decided, per token."""
    lengths = [batch["completion_ids"].size(1) for batch in inputs]
    advantages = [batch["advantages"].repeat_interleave(n) for batch, n in zip(inputs, lengths, strict=True)]
    return {
        "logps": torch.cat([logps.flatten() for logps, _ in scores]),
        "entropies": torch.cat([entropies.flatten() for _, entropies in scores]),
        "advantages": torch.cat(advantages),
        "valid": torch.cat([batch["completion_mask"].flatten() for batch in inputs]),
        "keep": torch.cat([keep_mask.flatten() for keep_mask in step.edit.keep_masks]),
    }


def check_scenario(name: str, found: dict, expected: dict) -> None:
    """The silenced tokens and the update are those of one process, from which bf16 alone may differ by its rounding."""
    both = [None, None]
    dist.all_gather_object(both, found)
    assert both[0]["metrics"] == both[1]["metrics"], name
    settings, odd_rows = SCENARIOS[name]
    for parts in zip(both[0]["steps"], both[1]["steps"], strict=True):
        if odd_rows == "equal rewards":
            assert not (parts[1]["advantages"] > 0).any()
        elif odd_rows == "no end":
            assert not parts[1]["valid"].any()
        elif odd_rows == "greedy":
            assert (parts[1]["advantages"] > 0).any()
            assert parts[1]["keep"].all() and parts[1]["logps"].exp().min() >= TOY_PROB_THRESHOLD
        whole = {key: torch.cat([part[key] for part in parts])[None] for key in parts[0]}
        keep_mask = reference_keep_mask(
            whole["logps"],
            whole["entropies"],
            whole["advantages"],
            whole["valid"],
            settings.get("s2t_prob_threshold", TOY_PROB_THRESHOLD),
            settings.get("s2t_entropy_quantile", 0.75),
            settings.get("s2t_entropy_population", "candidates"),
        )
        assert (whole["keep"] == keep_mask).all(), f"{name}: the processes decided otherwise than one would"

    if name == "bf16" and found["type"] != DistributedType.MULTI_CPU:
        return  # its parameters are bf16 too, so the forward of one process under autocast is another one
    assert sorted(both[0]["silenced"] + both[1]["silenced"]) == sorted(expected["silenced"]), name
    assert len(expected["silenced"]) > 2, name
    assert found["update"].keys() == expected["update"].keys()
    error = [(found["update"][weight] - update).norm() for weight, update in expected["update"].items()]
    error = torch.stack(error).norm() / torch.stack([update.norm() for update in expected["update"].values()]).norm()
    # DeepSpeed's weights are bf16 themselves, and a step this small is rounded to their grid
    assert error < (0.15 if "bf16" in name else 1e-5), (name, error)


def check_resume() -> None:
    """A run resumed inside a generation batch ends with the weights of the whole one."""
    settings = ONE | {
        "output_dir": shared_folder(),
        "optim": "adamw_torch",
        "steps_per_generation": 2,
        "max_steps": 3,
        "save_strategy": "steps",
        "save_steps": 1,
    }
    AcceleratorState._reset_state()
    whole = make_trainer(**settings)
    whole.train()
    AcceleratorState._reset_state()
    resumed = make_trainer(**settings | {"save_strategy": "no"})
    resumed.train(resume_from_checkpoint=f"{settings['output_dir']}/checkpoint-1")
    torch.testing.assert_close(full_weights(resumed), full_weights(whole), rtol=0, atol=0)


def check_nonfinite(on_nonfinite: str, change, **settings) -> None:
    """The loss of one process alone is not finite in the second step: both skip it, or both stop before it."""
    AcceleratorState._reset_state()
    trainer = make_trainer(
        **SEVERAL | settings, on_nonfinite=on_nonfinite, optim="adamw_torch", weight_decay=0.1, max_steps=3
    )
    compute_loss, losses, states = trainer._compute_loss, [], []

    def spoiled(model, inputs):
        losses.append(compute_loss(model, inputs))
        return change(losses[-1]) if dist.get_rank() == 1 and len(losses) == 3 else losses[-1]

    def log(logs, *args):
        if "grad_norm" in logs:
            states.append(full_weights(trainer))

    trainer._compute_loss, trainer.log = spoiled, log
    try:
        trainer.train()
        assert on_nonfinite == "skip" and len(states) == 3
        torch.testing.assert_close(states[1], states[0], rtol=0, atol=0)
        assert any((states[2][name] != value).any() for name, value in states[1].items())
        assert all(value.isfinite().all() for value in states[2].values())
    except RuntimeError as error:
        assert on_nonfinite == "raise" and "of step 2 is not finite; the weights are still" in str(error), error
        torch.testing.assert_close(full_weights(trainer), states[0], rtol=0, atol=0)
    assert trainer._num_nonfinite_steps == 1


def spoil_gradient(loss: torch.Tensor) -> torch.Tensor:
    loss.register_hook(lambda gradient: gradient * torch.nan)
    return loss


def shared_folder() -> str:
    folder = [tempfile.mkdtemp()]
    dist.broadcast_object_list(folder)
    return folder[0]


def run_recipe() -> None:
    """`stapo train` for two steps, without the supervised steps."""
    AcceleratorState._reset_state()

    def save(settings, output_dir, callbacks):
        build_model().save_pretrained(output_dir)
        build_tokenizer().save_pretrained(output_dir)

    warm_start.train_warm_start = save
    folder = shared_folder()
    os.environ["STAPO_CACHE"] = f"{folder}/cache"
    settings = {
        "output_dir": f"{folder}/run",
        "per_device_train_batch_size": 8,
        "max_completion_length": 12,
        "max_steps": 2,
        "save_steps": 2,
        "s2t_prob_threshold": 0.03,
        "ddp_timeout": 20,
    }
    cli.main(["train", *(word for name, value in settings.items() for word in (f"--{name}", str(value)))])
    if dist.get_rank() == 0:
        saved = load_file(f"{settings['output_dir']}/model.safetensors")
        saved.pop("lm_head.weight", None)  # tied to the embedding, which some engines save a second time
        assert sum(value.numel() for value in saved.values()) == NUM_PARAMETERS


if __name__ == "__main__":
    mode, file = sys.argv[1:]
    if mode == "reference":
        torch.save({name: run_scenario(name, 1) for name in SCENARIOS}, file)
    else:
        if mode == "FSDP":
            shard_on_cpu()
        if mode == "DEEPSPEED":
            import deepspeed.ops

            deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # spares a minute of g++ at the first start
        expected = torch.load(file, weights_only=False)
        for name in SCENARIOS:
            faulthandler.dump_traceback_later(PATIENCE, exit=True)
            found = run_scenario(name, 2)
            assert found["type"] == mode, (found["type"], mode)
            check_scenario(name, found, expected[name])
        faulthandler.dump_traceback_later(2 * PATIENCE, exit=True)
        check_resume()
        faulthandler.dump_traceback_later(2 * PATIENCE, exit=True)
        for on_nonfinite in ("raise", "skip"):
            check_nonfinite(on_nonfinite, lambda loss: loss + torch.inf)
            check_nonfinite(on_nonfinite, spoil_gradient, bf16=True)
        faulthandler.dump_traceback_later(2 * PATIENCE, exit=True)
        run_recipe()
        faulthandler.cancel_dump_traceback_later()
        print(f"rank {dist.get_rank()}: all checks passed")
        dist.destroy_process_group()
