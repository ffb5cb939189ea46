"""
Sums and ragged gathers over processes.

Every function makes the same collectives on every rank, whatever that rank holds, and none with one process.
"""

from collections.abc import Iterable

import torch
from accelerate import Accelerator

from ..rules.selection import at_least_float32


def gather_ragged(accelerator: Accelerator, values: torch.Tensor) -> tuple[torch.Tensor, slice]:
    """
    Vectors of all processes, joined in the order of the processes, and the slice of them that is this process's own.

    `values` (n,) are finite floats of one dtype on all ranks; n differs between ranks and may be 0.
    """
    values = at_least_float32(values)
    padded = accelerator.pad_across_processes(values, pad_index=float("-inf"))
    blocks = accelerator.gather(padded).view(accelerator.num_processes, len(padded))
    present = blocks.isfinite()
    start = int(present[: accelerator.process_index].sum())
    return blocks[present], slice(start, start + len(values))


def sum_over_processes(accelerator: Accelerator, values: Iterable[torch.Tensor | float]) -> list[float]:
    """
    Sums of scalars over all processes, on the host: one collective and one synchronisation for all of them.

    They are the same on all ranks, and counts are exact up to 2^53.
    """
    device = accelerator.device
    dtype = torch.float32 if device.type == "mps" else torch.float64  # Apple's GPUs have no float64
    local = torch.stack([torch.as_tensor(value, device=device, dtype=dtype) for value in values])
    return accelerator.reduce(local, reduction="sum").tolist()
