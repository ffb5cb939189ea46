"""What happens to an optimizer step whose gradient is not finite: it stops the run, is left out, or is only told."""

import math
import warnings

import torch


def handle_nonfinite_gradient(
    model: torch.nn.Module, grad_norm: torch.Tensor | float, on_nonfinite: str, step: int
) -> bool:
    """
    Act on the norm of a step's gradient, after the backward pass and before the weights change.

    The norm is that of all processes, so every process decides alike without a collective of its own.

    Args:
        model (`torch.nn.Module`):
            The model that is trained.
        grad_norm (`torch.Tensor` or `float`):
            Norm of the gradient of all its parameters.
        on_nonfinite (`str`):
            `"raise"`, `"skip"`: the gradients are removed, so that the optimizer changes neither weights nor its own
            state, or `"warn"`.
        step (`int`):
            Number of the step, for the message.

    Returns:
        `bool`: whether the gradient was not finite.

    Raises:
        `RuntimeError`: for `"raise"`, if it was not.
    """
    if math.isfinite(grad_norm):
        return False
    message = f"The gradient of step {step} is not finite (grad_norm {float(grad_norm)})"
    if on_nonfinite == "raise":
        raise RuntimeError(
            f"{message}; the weights are still those of the step before. Look at the rewards and at s2t/nonfinite, "
            "lower the learning rate, or leave such steps out with on_nonfinite='skip'."
        )
    if on_nonfinite == "skip":
        model.zero_grad(set_to_none=True)
    warnings.warn(f"{message}: the step is {'left out' if on_nonfinite == 'skip' else 'taken'}.")
    return True
