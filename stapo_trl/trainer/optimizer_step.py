"""One optimizer step under a token rule: its micro-batches flattened for the rule, and the edit laid out over them."""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from accelerate import Accelerator

from ..observe.recorder import StepRecord
from ..rules.s2t import S2T
from ..rules.selection import at_least_float32, token_keys
from ..rules.tokens import MIN_ADVANTAGE, Edit, Gather, Rule, StepEdit, Tokens, loss_mask, spread_advantages
from .collectives import gather_ragged, sum_over_processes


@dataclass
class EditedStep:
    """An optimizer step after its rule; its micro-batches share it."""

    edit: StepEdit
    num_kept: float  # tokens of all micro-batches and processes that stay in the loss
    num_valid: float  # the same, silenced ones included
    metrics: dict[str, float]  # undefined ones are left out
    rng_states: list[list[torch.Tensor] | None] | None = None  # from which each micro-batch was scored, if it drew
    record: StepRecord | None = None  # of its losses so far

    def apply(self, index: int, inputs: dict[str, Any]) -> dict[str, Any]:
        """
        The inputs of a micro-batch as the loss should see them: a copy, since TRL keeps its own for later steps.

        The completion mask is also the attention mask, so the keep mask goes into the other factor of TRL's loss mask.
        """
        mask = self.edit.keep_masks[index].to(inputs["completion_mask"].dtype)
        num_items = inputs["num_items_in_batch"].item() * self.num_kept / max(self.num_valid, 1)
        edited = {
            **inputs,
            "tool_mask": inputs.get("tool_mask", 1) * mask,
            "num_items_in_batch": torch.tensor(num_items, device=mask.device),  # rounded once, from float64
        }
        if self.edit.advantages[index] is not None:
            edited["advantages"] = self.edit.advantages[index].to(inputs["advantages"].dtype)
        return edited


def edit_step(
    rule: Rule,
    inputs: list[dict[str, Any]],
    scores: list[tuple[torch.Tensor, torch.Tensor]],
    accelerator: Accelerator,
    seed: int,
) -> EditedStep:
    """
    Apply a rule to one optimizer step. Collective: every process calls it once for each step.

    Args:
        rule ([`~stapo_trl.rules.tokens.Rule`]):
            The rule.
        inputs (`list[dict]`):
            This process's micro-batches, as TRL hands them to the loss.
        scores (`list[tuple[torch.Tensor, torch.Tensor]]`):
            Log-probs (B, T) and entropies (B, T) of each, in nats, under the current policy.
        accelerator (`Accelerator`):
            The trainer's.
        seed (`int`):
            Seed of the tokens' keys, another one for each step.

    Returns:
        [`EditedStep`].
    """
    tokens, places = flatten(inputs, scores, seed, rule.positive_only)
    gather = partial(gather_ragged, accelerator)
    edit = rule(tokens, gather)
    for name in ("keep", "advantages", "candidates"):
        given = getattr(edit, name)
        if given is not None and (
            len(given) != len(tokens.logps) or (given.dtype != torch.bool) != (name == "advantages")
        ):
            raise ValueError(
                f"The token rule {rule!r} must answer with a {'float' if name == 'advantages' else 'boolean'} `{name}` for "
                f"each of the {len(tokens.logps)} tokens, got {given.dtype} of shape {tuple(given.shape)}."
            )
    edit = watch(rule, tokens, edit, gather)
    num_valid = sum(loss_mask(batch).sum() for batch in inputs)
    num_valid, *sums = sum_over_processes(accelerator, [num_valid, *sum_edit(tokens, edit)])
    metrics = describe_edit(edit, num_valid, *sums) | edit.metrics
    return EditedStep(lay_out(tokens, edit, inputs, places), num_valid - sums[1], num_valid, metrics)


def flatten(
    inputs: list[dict[str, Any]], scores: list[tuple[torch.Tensor, torch.Tensor]], seed: int, positive_only: bool
) -> tuple[Tokens, list[torch.Tensor]]:
    """The tokens that a rule sees, and for each micro-batch where they stand: a boolean mask (B, T)."""
    columns, places, num_responses = [], [], 0
    for batch, (logps, entropies) in zip(inputs, scores, strict=True):
        logps, entropies = at_least_float32(logps.detach()), at_least_float32(entropies.detach())
        advantages = spread_advantages(batch)
        advantages = (advantages.unsqueeze(1) if advantages.dim() == 1 else advantages).expand_as(logps)
        old_logps = at_least_float32(batch.get("old_per_token_logps", logps))
        place = loss_mask(batch).bool() & logps.isfinite() & entropies.isfinite() & old_logps.isfinite()
        if positive_only:
            place &= advantages > MIN_ADVANTAGE
        keys = token_keys(batch["completion_ids"], seed)
        rows = torch.arange(len(place), device=place.device).unsqueeze(1).expand_as(place) + num_responses
        num_responses += len(place)
        columns.append([x[place] for x in (logps, entropies, advantages, old_logps, keys, rows)])
        places.append(place)
    return Tokens(*map(torch.cat, zip(*columns, strict=True))), places


def watch(rule: Rule, tokens: Tokens, edit: Edit, gather: Gather) -> Edit:
    """The edit of a rule other than STAPO's with STAPO's candidates and quadrants, so that runs can be compared."""
    if isinstance(rule, S2T):
        return edit
    seen = S2T(entropy_quantile=0.0)(tokens, gather)
    return replace(
        edit,
        candidates=seen.candidates if edit.candidates is None else edit.candidates,
        quadrants=seen.quadrants if edit.quadrants is None else edit.quadrants,
    )


def find_changed(tokens: Tokens, edit: Edit) -> torch.Tensor:
    """(N,) boolean: the tokens to which the rule gave another advantage."""
    if edit.advantages is None:
        return torch.zeros_like(tokens.logps, dtype=torch.bool)
    return edit.advantages != tokens.advantages


def lay_out(tokens: Tokens, edit: Edit, inputs: list[dict[str, Any]], places: list[torch.Tensor]) -> StepEdit:
    """The inverse of [`flatten`]: tokens that the rule did not see or change are as they were, to the last bit."""
    counts = [int(place.sum()) for place in places]

    def split(flat: torch.Tensor | None) -> list[torch.Tensor | None]:
        return [None] * len(counts) if flat is None else flat.split(counts)

    keep_masks, advantages, candidates = [], [], []
    columns = (edit.keep, edit.advantages, edit.candidates, find_changed(tokens, edit))
    parts = zip(*map(split, columns), strict=True)
    for batch, place, (keep, advantage, candidate, changed) in zip(inputs, places, parts, strict=True):
        keep_masks.append(
            torch.ones_like(place) if keep is None else torch.ones_like(place).masked_scatter(place, keep)
        )
        none = torch.zeros_like(place)
        candidates.append(none if candidate is None else none.masked_scatter(place, candidate))
        if advantage is not None:
            own = batch["advantages"]
            own = (own.unsqueeze(1) if own.dim() == 1 else own).expand(place.shape)
            edited = torch.zeros_like(place).masked_scatter(place, changed)
            advantage = own.masked_scatter(edited, advantage[changed].to(own.dtype))
        advantages.append(advantage)
    return StepEdit(keep_masks, advantages, candidates, edit.quadrants)


def sum_edit(tokens: Tokens, edit: Edit) -> list[torch.Tensor | float]:
    """
    Sums over this process's tokens: candidates, silenced ones, the probability and entropy of the latter, and how many of
    the others have a new advantage.
    """
    silenced = torch.zeros_like(tokens.logps, dtype=torch.bool) if edit.keep is None else ~edit.keep
    candidates = 0.0 if edit.candidates is None else edit.candidates.sum()
    num_changed = (find_changed(tokens, edit) & ~silenced).sum()
    return [
        candidates,
        silenced.sum(),
        tokens.logps[silenced].exp().sum(),
        tokens.entropies[silenced].sum(),
        num_changed,
    ]


def describe_edit(
    edit: Edit,
    num_valid: float,
    num_candidates: float,
    num_silenced: float,
    sum_probs: float,
    sum_entropies: float,
    num_changed: float,
) -> dict[str, float]:
    """Metrics of an edit, from the sums of [`sum_edit`] over all processes."""
    metrics = {}
    if num_valid > 0:
        metrics["s2t/silenced_share"] = num_silenced / num_valid
        metrics["s2t/candidate_share"] = num_candidates / num_valid
        if edit.advantages is not None:
            metrics["s2t/changed_share"] = num_changed / num_valid
    if num_silenced > 0:
        metrics["s2t/silenced_prob"] = sum_probs / num_silenced
        metrics["s2t/silenced_entropy"] = sum_entropies / num_silenced
    return metrics
