"""The mask of one mini-batch that is cut into micro-batches on several processes: the same tokens, however it is cut."""

from typing import Any, NamedTuple

import torch
from accelerate import Accelerator

from ..rules import s2t
from .collectives import gather_ragged, sum_over_processes


class Silenced(NamedTuple):
    """What is silenced in a mini-batch, one entry of each list for each of this process's micro-batches."""

    keep_masks: list[torch.Tensor]  # (B, T) boolean, True = trained
    candidates: list[torch.Tensor]  # (B, T) boolean
    num_kept: float  # tokens of all micro-batches and processes
    num_valid: float  # the same, silenced ones included
    quadrant_threshold: float  # nats: the entropy that parts the quadrants; infinite without any candidate
    metrics: dict[str, float]  # undefined ones are left out


def silence(
    accelerator: Accelerator,
    inputs: list[dict[str, Any]],
    scores: list[tuple[torch.Tensor, torch.Tensor]],
    prob_threshold: float,
    entropy_quantile: float,
    entropy_population: str,
    selection: str,
    seed: int,
) -> Silenced:
    """
    Silence the spurious tokens of one mini-batch. Collective: every process calls it once for each mini-batch.

    Args:
        accelerator (`Accelerator`):
            The trainer's.
        inputs (`list[dict]`):
            This process's micro-batches, as TRL hands them to the loss.
        scores (`list[tuple[torch.Tensor, torch.Tensor]]`):
            Log-probs (B, T) and entropies (B, T) of each, in nats, under the current policy.
        prob_threshold, entropy_quantile, entropy_population, selection:
            See [`STAPOConfig`].
        seed (`int`):
            Seed of the random ablation, another one for each step.

    Returns:
        [`Silenced`].
    """
    logps, entropies = zip(*[(logps.detach(), entropies.detach()) for logps, entropies in scores], strict=True)
    masks = [loss_mask(batch).bool() for batch in inputs]
    candidates = [
        s2t.find_candidates(logp, entropy, spread_advantages(batch), mask, prob_threshold)
        for logp, entropy, batch, mask in zip(logps, entropies, inputs, masks, strict=True)
    ]
    local_entropies = [entropy[candidate] for entropy, candidate in zip(entropies, candidates, strict=True)]
    all_entropies, own = gather_ragged(accelerator, torch.cat(local_entropies))

    population, random_keys = all_entropies, None
    if entropy_population == "all":
        valid = [e[mask & e.isfinite()] for e, mask in zip(entropies, masks, strict=True)]
        population, _ = gather_ragged(accelerator, torch.cat(valid))
    if selection == "random":
        keys = [s2t.token_keys(x["completion_ids"], seed)[c] for x, c in zip(inputs, candidates, strict=True)]
        random_keys, _ = gather_ragged(accelerator, torch.cat(keys))

    threshold = s2t.entropy_threshold(population, entropy_quantile)
    all_silenced = s2t.select_silenced(all_entropies, threshold, selection, random_keys)
    silenced = all_silenced[own].split([len(x) for x in local_entropies])

    keep_masks = []
    for candidate, part in zip(candidates, silenced, strict=True):
        keep_mask = torch.ones_like(candidate)
        keep_mask[candidate] = ~part
        keep_masks.append(keep_mask)

    silenced_probs = [logp[~keep].exp().sum() for logp, keep in zip(logps, keep_masks, strict=True)]
    num_valid, sum_probs = sum_over_processes(accelerator, [sum(mask.sum() for mask in masks), sum(silenced_probs)])
    num_silenced = int(all_silenced.sum())
    metrics = {}
    if num_valid > 0:
        metrics["s2t/silenced_share"] = num_silenced / num_valid
        metrics["s2t/candidate_share"] = len(all_entropies) / num_valid
    if threshold.isfinite():
        metrics["s2t/entropy_threshold"] = threshold.item()
    if num_silenced > 0:
        metrics["s2t/silenced_prob"] = sum_probs / num_silenced
        metrics["s2t/silenced_entropy"] = all_entropies[all_silenced].mean().item()
    return Silenced(
        keep_masks,
        candidates,
        num_valid - num_silenced,
        num_valid,
        quadrant_threshold(population, entropy_quantile).item(),
        metrics,
    )


def quadrant_threshold(population: torch.Tensor, entropy_quantile: float) -> torch.Tensor:
    """The entropy that parts high from low, in nats: the rule's own, or at q = 0 and 1, where it has none, the paper's."""
    if population.numel() == 0:
        return population.new_tensor(torch.inf)
    return s2t.quantile(population, entropy_quantile if 0.0 < entropy_quantile < 1.0 else s2t.PAPER_QUANTILE)


def loss_mask(inputs: dict[str, Any]) -> torch.Tensor:
    """(B, T), 1 for the tokens that TRL's loss counts."""
    return inputs["completion_mask"] * inputs.get("tool_mask", 1)


def spread_advantages(inputs: dict[str, Any]) -> torch.Tensor:
    """(B,) or (B, T), zero in groups whose rewards are all equal, where TRL's are rounding errors."""
    advantages = inputs["advantages"]
    if "has_spread" not in inputs:
        return advantages
    return advantages * inputs["has_spread"].view(-1, *[1] * (advantages.dim() - 1))
