"""[`FiniteSteps`]: an optimizer step whose loss or gradient is not finite stops the run, is left out, or is only told."""

import math
import warnings

import torch

from .collectives import sum_over_processes


class FiniteSteps:
    """
    Mixin of [`~trl.GRPOTrainer`] that does with an optimizer step that is not finite what `on_nonfinite` says.

    A step is not finite if the loss of one of its micro-batches is not, on any process, or if its gradient is not.
    Under fp16 only the loss counts, as an infinite gradient is how the loss scale is found there. All processes decide
    together, from one sum a step.

    A step that is left out changes neither weights nor the optimizer's state (gradients of zero would: by weight decay
    and momentum). It counts as a step of the run.
    """

    on_nonfinite: str
    _num_nonfinite_steps = 0  # of this run, the same on all processes
    _num_nonfinite_losses = 0  # of the current step and this process

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        loss = super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
        if return_outputs or not self.model.training:
            return loss
        finite = loss.detach().isfinite()
        self._num_nonfinite_losses = self._num_nonfinite_losses + (~finite).sum()
        if self.is_deepspeed_enabled and self.on_nonfinite != "warn":
            # DeepSpeed steps within its last backward pass, and leaves out a step whose gradient is not finite
            loss = loss * torch.where(finite, 1.0, torch.nan).to(loss.dtype)
        return loss

    def _get_grad_norm(self, model, grad_norm=None):
        """Called once per optimizer step, after the backward passes of all processes and before the weights change."""
        grad_norm = super()._get_grad_norm(model, grad_norm)
        is_skipped = self.is_deepspeed_enabled and self.accelerator.optimizer_step_was_skipped
        # ZeRO-3 reports the norm of the step before, or none, for a step that it leaves out
        is_broken = is_skipped or not math.isfinite(grad_norm or 0.0)
        seeks_loss_scale = self.accelerator.mixed_precision == "fp16"
        num_losses, num_broken = sum_over_processes(self.accelerator, [self._num_nonfinite_losses, float(is_broken)])
        self._num_nonfinite_losses = 0
        if num_losses > 0 or (num_broken > 0 and not seeks_loss_scale):
            self._num_nonfinite_steps += 1
            what = "loss" if num_losses > 0 else "gradient"
            self._handle_nonfinite(f"The {what} of step {self.state.global_step + 1} is not finite", is_skipped)
        if self._num_nonfinite_steps > 0:
            self._metrics["train"]["s2t/nonfinite_steps"] = [self._num_nonfinite_steps]
        return grad_norm

    def _handle_nonfinite(self, what: str, is_skipped: bool) -> None:
        if self.on_nonfinite != "warn" and self.is_deepspeed_enabled and not is_skipped:
            raise RuntimeError(
                f"{what}, and DeepSpeed has taken it: resume from the last checkpoint, with `check_grad_overflow` set in "
                "the bf16 part of its configuration."
            )
        if self.on_nonfinite == "raise":
            raise RuntimeError(
                f"{what}; the weights are still those of the step before. Look at the rewards and at s2t/nonfinite, "
                "lower the learning rate, or leave such steps out with on_nonfinite='skip'."
            )
        if self.on_nonfinite == "skip":
            self.optimizer.zero_grad(set_to_none=True)  # it passes over a weight without a gradient
            is_skipped = True
        if self.is_world_process_zero():
            warnings.warn(
                f"{what}: the step is {'left out' if is_skipped else 'taken'} ({self._num_nonfinite_steps} so far)."
            )
