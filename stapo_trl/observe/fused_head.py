"""TRL's fused LM head, asked for one more number: the sum of squared probabilities, which a gradient norm needs."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from transformers import PreTrainedModel
from trl.trainer.utils import add_fused_lm_head


@contextmanager
def capture_sum_sq(model: PreTrainedModel, temperature: float, cast_lm_head_to_fp32: bool) -> Iterator[list]:
    """
    Within this context, each fused forward of the model leaves its `log_sum_sq_probs` behind.

    TRL fixes the outputs of the head when it is added, and every output costs a little in every forward. So the head is
    added once more, for these forwards only; loss and gradients are the same.

    `model` is the causal language model itself, not a PEFT or distributed wrapper around it. The list that is yielded gets
    one tensor of shape (B, sequence length - 1) for each forward.
    """
    own_forward = model.forward
    add_fused_lm_head(model, temperature, cast_lm_head_to_fp32, ("log_probs", "entropy", "log_sum_sq_probs"))
    fused_forward, captured = model.forward, []

    def forward(*args, **kwargs):
        outputs = fused_forward(*args, **kwargs)
        if kwargs.get("fused_lm_head"):
            captured.append(outputs.log_sum_sq_probs.detach())
        return outputs

    model.forward = forward
    try:
        yield captured
    finally:
        model.forward = own_forward


@torch.no_grad()
def find_alternatives(
    model: torch.nn.Module, input_ids: torch.Tensor, positions: list[int], temperature: float, count: int = 5
) -> list[tuple[list[int], list[float]]]:
    """
    The most probable tokens at some positions of one sequence: one forward, with logits at these positions only.

    Args:
        model (`torch.nn.Module`):
            Causal language model, wrapped or not, in evaluation mode.
        input_ids (`torch.Tensor` of shape (L,)):
            The sequence, without padding.
        positions (`list[int]`):
            Positions of tokens in it, each at least 1.

    Returns:
        `list[tuple[list[int], list[float]]]`: for each position the ids of the `count` most probable tokens after the
        sampling temperature, best first, and their probabilities.
    """
    input_ids = input_ids[: max(positions)].unsqueeze(0)
    logits = model(
        input_ids=input_ids,
        attention_mask=torch.ones_like(input_ids),
        logits_to_keep=torch.tensor(positions, device=input_ids.device) - 1,
        use_cache=False,
    ).logits[0]
    probs, ids = (logits.float() / temperature).softmax(-1).topk(min(count, logits.size(-1)))
    return list(zip(ids.tolist(), probs.tolist(), strict=True))
