"""
The one place that looks at versions and at TRL's private methods.

[`STAPOTrainer`] overrides or calls a handful of `GRPOTrainer`'s methods. They are private and have changed before, so
their signatures are compared with the tested ones when the trainer is built, and `tests/trainer/test_compat.py`
pins what a signature does not show.
"""

import inspect
import sys
import warnings
from importlib.metadata import PackageNotFoundError, version


TESTED_TRL = ">=1.16,<1.17"

# Method of GRPOTrainer -> parameters that the overrides rely on
HOOKS = {
    "get_batch_samples": ["self", "epoch_iterator", "num_batches", "device"],
    "_prepare_inputs": ["self", "generation_batch"],
    "_generate_and_score_completions": ["self", "inputs"],
    "_calculate_rewards": ["self", "inputs", "prompts", "completions", "completion_ids_list"],
    "_get_per_token_logps_and_entropies": [
        "self",
        "model",
        "input_ids",
        "attention_mask",
        "logits_to_keep",
        "batch_size",
        "compute_entropy",
        "compute_aux_loss",
    ],
    "_compute_loss": ["self", "model", "inputs"],
    "compute_loss": ["self", "model", "inputs", "return_outputs", "num_items_in_batch"],
    "train": ["self", "resume_from_checkpoint"],
    "_run_epoch": ["self"],
    "_get_grad_norm": ["self", "model", "grad_norm"],
    "_get_train_sampler": ["self", "dataset"],
    "_save_checkpoint": ["self", "model", "trial"],
    "_save_rng_state": ["self", "output_dir"],
    "_load_rng_state": ["self", "checkpoint"],
}


def check_environment(uses_peft: bool) -> None:
    """
    Warn of packages that were upgraded under a running session, and refuse a torchao that PEFT cannot work with.

    Hosted notebooks such as Colab come with older versions of both, already imported.
    """
    for name in ("accelerate", "datasets", "peft", "pyarrow", "transformers", "trl"):
        loaded = getattr(sys.modules.get(name), "__version__", None)
        try:
            installed = version(name)
        except PackageNotFoundError:  # on the path, but not installed
            continue
        if loaded is not None and loaded != installed:
            warnings.warn(
                f"{name} {loaded} was imported before {installed} was installed: restart the session (in Colab: "
                "Runtime > Restart session), or the two get mixed."
            )
    if uses_peft:
        from peft.import_utils import is_torchao_available

        try:
            is_torchao_available()
        except ImportError as error:
            raise RuntimeError(
                f"{error} Run `pip uninstall -y torchao`, or upgrade it, and restart the session."
            ) from error


def check_base_trainer(base: type) -> None:
    """
    Refuse a `GRPOTrainer` that the overrides were not written for: Unsloth's, whose forward returns no entropies, or one in
    which a method that they rely on is missing or has other parameters.
    """
    if "unsloth" in sys.modules or "unsloth" in f"{base.__module__}.{base.__qualname__}".lower():
        raise RuntimeError(
            f"STAPOTrainer cannot silence tokens where Unsloth has patched TRL (GRPOTrainer comes from {base.__module__}), "
            "because its forward returns no entropies: run the script without importing unsloth."
        )
    for name, expected in HOOKS.items():
        method = getattr(base, name, None)
        found = list(inspect.signature(method).parameters)[: len(expected)] if method is not None else None
        if found != expected:
            raise RuntimeError(
                f"`GRPOTrainer.{name}` has the parameters {found} in trl {version('trl')}, but STAPOTrainer was written "
                f"for {expected}: install trl{TESTED_TRL}."
            )
