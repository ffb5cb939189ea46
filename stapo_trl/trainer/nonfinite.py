"""[`FiniteStepTrainer`]: an optimizer step whose loss or gradient is not finite stops the run, is skipped, or only warns."""

import math
import warnings
from typing import Any

import torch

from .collectives import sum_over_processes
from .resume import ExactResumeTrainer


class FiniteStepTrainer(ExactResumeTrainer):
    """
    [`~trl.GRPOTrainer`] that treats an optimizer step that is not finite as `args.on_nonfinite` says.

    A step is not finite if the loss of one of its micro-batches is not, on any process, or if its gradient is not.
    Under fp16 only the loss counts, as an infinite gradient is how the loss scale is found there. All processes decide
    together, from one sum a step.

    A skipped step changes neither weights nor the optimizer's state (gradients of zero would: by weight decay and
    momentum). It counts as a step of the run, and from the first one on `s2t/nonfinite_steps` logs how many there were.
    """

    _num_nonfinite_steps = 0  # of this run, the same on all processes
    _num_nonfinite_losses = 0  # of the current step and this process

    def train(self, *args, **kwargs):
        self._num_nonfinite_steps = 0
        return super().train(*args, **kwargs)

    def get_batch_samples(self, epoch_iterator, num_batches, device):
        self._num_nonfinite_losses = 0
        return super().get_batch_samples(epoch_iterator, num_batches, device)

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        loss = super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
        if return_outputs or not self.model.training:
            return loss
        finite = loss.detach().isfinite()
        self._num_nonfinite_losses = self._num_nonfinite_losses + (~finite).sum()
        if self.is_deepspeed_enabled and self.args.on_nonfinite != "warn":
            # DeepSpeed steps within its last backward pass, and skips a step whose gradient is not finite
            loss = loss * torch.where(finite, 1.0, torch.nan).to(loss.dtype)
        return loss

    def _get_grad_norm(self, model, grad_norm=None):
        """Called once per optimizer step, after the backward passes of all processes and before the weights change."""
        grad_norm = super()._get_grad_norm(model, grad_norm)
        is_skipped = self.is_deepspeed_enabled and self.accelerator.optimizer_step_was_skipped
        # ZeRO-3 reports the norm of the step before, or none, for a step that it skips
        is_broken = is_skipped or not math.isfinite(grad_norm or 0.0)
        seeks_loss_scale = self.accelerator.mixed_precision == "fp16"
        num_losses, num_broken = sum_over_processes(self.accelerator, [self._num_nonfinite_losses, float(is_broken)])
        if num_losses > 0 or (num_broken > 0 and not seeks_loss_scale):
            self._num_nonfinite_steps += 1
            what = "loss" if num_losses > 0 else "gradient"
            self._handle_nonfinite(f"The {what} of step {self.state.global_step + 1} is not finite", is_skipped)
        if self._num_nonfinite_steps > 0:
            self._metrics["train"]["s2t/nonfinite_steps"] = [self._num_nonfinite_steps]
        return grad_norm

    def _handle_nonfinite(self, what: str, is_skipped: bool) -> None:
        if self.args.on_nonfinite != "warn" and self.is_deepspeed_enabled and not is_skipped:
            raise RuntimeError(
                f"{what}, and DeepSpeed has taken it: resume from the last checkpoint, with `check_grad_overflow` set in "
                "the bf16 part of its configuration."
            )
        if self.args.on_nonfinite == "raise":
            raise RuntimeError(
                f"{what}; the weights are still those of the step before. Look at the rewards and at s2t/nonfinite, "
                "lower the learning rate, or skip such steps with on_nonfinite='skip'."
            )
        if self.args.on_nonfinite == "skip":
            self.optimizer.zero_grad(set_to_none=True)  # a weight without a gradient stays as it is
            is_skipped = True
        if self.is_world_process_zero():
            warnings.warn(
                f"{what}: the step is {'skipped' if is_skipped else 'taken'} ({self._num_nonfinite_steps} so far)."
            )

    def get_resume_state(self) -> dict[str, Any]:
        return super().get_resume_state() | {"num_nonfinite_steps": self._num_nonfinite_steps}

    def set_resume_state(self, state: dict[str, Any]) -> None:
        super().set_resume_state(state)
        self._num_nonfinite_steps = state["num_nonfinite_steps"]
