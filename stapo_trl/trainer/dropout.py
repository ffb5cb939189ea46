"""Dropout: scoring a micro-batch with the very dropout masks that its loss will see."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn


def has_dropout(model: nn.Module) -> bool:
    """
    Whether a forward pass in training mode draws random numbers.

    Args:
        model (`nn.Module`):
            The policy. Its modules are looked at, and its configuration for functional dropout (attention).

    Returns:
        `bool`: `True` if a dropout module has p > 0 or a rate in the configuration is positive.
    """
    if any(isinstance(module, nn.modules.dropout._DropoutNd) and module.p > 0 for module in model.modules()):
        return True
    config = model.config.to_dict() if hasattr(model, "config") else {}
    return any("drop" in name and isinstance(rate, float) and rate > 0 for name, rate in config.items())


def get_rng_state(device: torch.device) -> tuple[torch.Tensor, ...]:
    """State of the CPU's generator, followed by the one of `device` where that is another."""
    if device.type == "cpu":
        return (torch.get_rng_state(),)
    return torch.get_rng_state(), torch.get_device_module(device).get_rng_state(device)


@contextmanager
def replay(rng_state: tuple[torch.Tensor, ...] | None, device: torch.device) -> Iterator[None]:
    """
    Run the body from an earlier state of the generators, and put them back afterwards.

    Args:
        rng_state (`tuple[torch.Tensor, ...]`, *optional*):
            From [`get_rng_state`]. With `None` the body runs as it is.
        device (`torch.device`):
            The device of the model.
    """
    if rng_state is None:
        yield
        return
    if device.type == "cpu":
        fork = torch.random.fork_rng(devices=[])
    else:
        fork = torch.random.fork_rng(devices=[device], device_type=device.type)
    with fork:
        torch.set_rng_state(rng_state[0])
        for state in rng_state[1:]:
            torch.get_device_module(device).set_rng_state(state, device)
        yield
