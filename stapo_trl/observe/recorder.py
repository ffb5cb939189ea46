"""What is remembered of the tokens of an optimizer step: rows for the token log, sums for the metrics."""

import json
import zlib
from contextlib import nullcontext
from typing import Any

import torch
from accelerate.utils import is_peft_model
from trl.models.utils import disable_gradient_checkpointing

from ..rules.selection import token_keys
from ..rules.tokens import StepEdit, loss_mask, spread_advantages
from . import fused_head
from .dynamics import gradient_norm_sq, gradient_weights, sum_quadrants


# A row of the log costs about a hundred bytes on disk and 50 microseconds
SAMPLED_CANDIDATES = 16  # kept candidates of an optimizer step on a process
SAMPLED_OTHERS = 32  # other valid tokens, in the steps with statistics
SAMPLED_EDITS = 64  # tokens that a rule other than STAPO's silenced or weighed anew: it may be most of them
SHOWN_RESPONSES = 4  # responses whose tokens get alternatives, in the steps with statistics
SHOWN_POSITIONS = 16  # at most, in each of them
TEXT_BEFORE, TEXT_AFTER = 32, 12  # tokens of context
CLIPPED_LOSSES = ("grpo", "bnpo", "dr_grpo", "dapo", "luspo")


def takes_statistics(trainer) -> bool:
    """Whether statistics are taken in the current optimizer step: in the first and every n-th after it."""
    every = trainer.args.token_stats_steps
    return trainer.model.training and every > 0 and trainer.state.global_step % every == 0


def capture_sum_sq(trainer):
    """In steps with statistics, a context in which TRL's head gives one more number for each position."""
    if not takes_statistics(trainer):
        return nullcontext()
    model = trainer.accelerator.unwrap_model(trainer.model)
    model = model.get_base_model() if is_peft_model(model) else model
    return fused_head.capture_sum_sq(model, trainer.temperature, trainer.args.cast_lm_head_to_fp32)


class StepRecord:
    """
    The record of one optimizer step. Every process makes the same calls, whatever it holds.

    The most probable alternatives are looked up when it is made, before the weights change.

    Args:
        trainer ([`~stapo_trl.trainer.token_rule.TokenRuleTrainer`]):
            Its model, tokenizer and settings are read.
        inputs (`list[dict]`):
            The micro-batches of this process.
        edit ([`~stapo_trl.rules.tokens.StepEdit`]):
            What the rule answered.
    """

    def __init__(self, trainer, inputs: list[dict[str, Any]], edit: StepEdit):
        self.trainer, self.inputs, self.edit = trainer, inputs, edit
        self.has_statistics = takes_statistics(trainer)
        self.seen = []  # log-probs, entropies, gradient norms or None of each micro-batch so far
        self.shown = []  # (micro-batch, row) of the responses that are logged whole
        self.alternatives = {}  # (micro-batch, row, position): (ids, probs)
        if trainer.token_log is not None and self.has_statistics:
            self._look_up_alternatives()

    def _look_up_alternatives(self) -> None:
        rows = []  # with silenced tokens first, then those with candidates
        for index, (keep, candidate) in enumerate(zip(self.edit.keep_masks, self.edit.candidates, strict=True)):
            rank = 2 * (~keep).any(1).int() + candidate.any(1).int()
            rows += [(-value, index, row) for row, value in enumerate(rank.tolist())]
        self.shown = [(index, row) for _, index, row in sorted(rows)[:SHOWN_RESPONSES]]

        trainer, model = self.trainer, self.trainer.model
        if trainer._is_vlm:  # the images would have to come along
            return
        was_training = model.training
        model.eval()
        try:
            with disable_gradient_checkpointing(model, trainer.args.gradient_checkpointing_kwargs):
                # As many forwards on every process: those of a sharded model are collective
                for index, row in self.shown + self.shown[:1] * (SHOWN_RESPONSES - len(self.shown)):
                    silenced, candidate = ~self.edit.keep_masks[index][row], self.edit.candidates[index][row]
                    positions = _positions(silenced) + _positions(candidate & ~silenced)
                    positions = positions[:SHOWN_POSITIONS] or [0]
                    prompt, completion = _unpadded(self.inputs[index], row)
                    with trainer.accelerator.autocast():
                        found = fused_head.find_alternatives(
                            model,
                            torch.cat([prompt, completion]),
                            [len(prompt) + position for position in positions],
                            trainer.temperature,
                        )
                    self.alternatives |= {(index, row, p): pair for p, pair in zip(positions, found, strict=True)}
        finally:
            model.train(was_training)

    def observe(self, logps: torch.Tensor, entropies: torch.Tensor, sums_sq: list[torch.Tensor] | None) -> None:
        """
        Keep what the loss's forward of the next micro-batch gave; nothing is moved here.

        Args:
            logps, entropies (`torch.Tensor` of shape (B, T)):
                In nats.
            sums_sq (`list[torch.Tensor]`, *optional*):
                From [`capture_sum_sq`]; empty for a forward that is not TRL's fused one, such as a compiled model's.
        """
        logps, entropies, norms = logps.detach(), entropies.detach(), None
        if sums_sq:
            trainer, inputs = self.trainer, self.inputs[len(self.seen)]
            epsilons = (trainer.epsilon_low, trainer.epsilon_high)
            if trainer.loss_type not in CLIPPED_LOSSES:
                epsilons = (torch.inf, torch.inf)
            edited = self.edit.advantages[len(self.seen)]
            advantages = spread_advantages(inputs) if edited is None else edited
            weights = gradient_weights(_ratios(inputs, logps), advantages, *epsilons)
            norms = gradient_norm_sq(logps, sums_sq[0][:, -logps.size(1) :], weights).sqrt()
        self.seen.append((logps, entropies, norms))

    @property
    def is_complete(self) -> bool:
        return len(self.seen) == len(self.inputs)

    def sums(self) -> list[torch.Tensor]:
        """
        Sums over this process's valid tokens: those with finite scores, the others, and the entropy of the former in
        nats; in steps with statistics, followed by the (3, 4, 6) sums of [`~stapo_trl.observe.dynamics.sum_quadrants`].
        """
        sums, quadrants = [0.0, 0.0, 0.0], []
        for inputs, (logps, entropies, norms) in zip(self.inputs, self.seen, strict=True):
            valid = loss_mask(inputs).bool()
            finite = valid & logps.isfinite() & entropies.isfinite()
            found = (finite.sum(), (valid & ~finite).sum(), torch.where(finite, entropies, 0).sum())
            sums = [total + value for total, value in zip(sums, found, strict=True)]
            if norms is not None:
                prob_threshold, entropy_threshold = self.edit.quadrants or (0.0, torch.inf)
                advantages = spread_advantages(inputs)
                quadrants.append(
                    sum_quadrants(logps, entropies, norms, advantages, valid, prob_threshold, entropy_threshold)
                )
        return sums + (list(sum(quadrants).flatten()) if quadrants else [])

    def rows(self) -> tuple[list[dict], list[dict]]:
        """Rows for the token log, see [`token_log.TOKENS`] and [`token_log.COMPLETIONS`]."""
        tokens, completions = [], []
        num_candidates, num_others = SAMPLED_CANDIDATES, SAMPLED_OTHERS if self.has_statistics else 0
        for index in range(len(self.seen)):
            share = len(self.seen) - index  # the samples that are left are spread over the micro-batches that are left
            chosen = self._choose(index, -(-num_candidates // share), -(-num_others // share))
            num_candidates -= len(chosen[1])
            num_others -= len(chosen[2])
            tokens += self._token_rows(index, torch.cat(chosen))
            if self.trainer.accelerator.is_main_process:
                completions += [self._completion_row(index, row) for shown, row in self.shown if shown == index]
        return tokens, completions

    def _choose(self, index: int, num_candidates: int, num_others: int) -> tuple[torch.Tensor, ...]:
        """
        (N, 2) rows and positions: every silenced candidate, and samples of kept candidates, of the others that the rule
        left alone, and of those that it edited.
        """
        inputs, (logps, entropies, _) = self.inputs[index], self.seen[index]
        keep, candidate = self.edit.keep_masks[index], self.edit.candidates[index]
        valid = loss_mask(inputs).bool() & logps.isfinite() & entropies.isfinite()
        keys = token_keys(inputs["completion_ids"], self.trainer.args.seed + self.trainer.state.global_step)

        def sample(mask: torch.Tensor, count: int) -> torch.Tensor:
            places = mask.nonzero()
            return places[keys[mask].topk(min(count, len(places)), largest=False).indices]

        edited = ~keep
        if self.edit.advantages[index] is not None:
            edited = edited | (self.edit.advantages[index] != _by_token(inputs["advantages"], keep))
        others = valid & ~candidate
        return (
            (~keep & candidate).nonzero(),
            sample(candidate & keep, num_candidates),
            sample(others & ~edited, num_others),
            sample(others & edited, -(-SAMPLED_EDITS // len(self.seen))),
        )

    def _token_rows(self, index: int, places: torch.Tensor) -> list[dict]:
        if len(places) == 0:
            return []
        inputs, (logps, entropies, norms), edit = self.inputs[index], self.seen[index], self.edit
        row, position = places.unbind(1)
        columns = {
            "prob": logps[row, position].exp(),
            "entropy": entropies[row, position],
            "advantage": _by_token(spread_advantages(inputs), logps)[row, position],
            "ratio": _ratios(inputs, logps)[row, position],
            "candidate": edit.candidates[index][row, position],
            "silenced": ~edit.keep_masks[index][row, position],
            "token_id": inputs["completion_ids"][row, position],
            "position": position,
        }
        if edit.advantages[index] is not None:
            columns["edited_advantage"] = edit.advantages[index][row, position]
        if norms is not None:
            columns["gradient_norm"] = norms[row, position]
        columns = {name: column.tolist() for name, column in columns.items()}
        texts = {r: [tensor.tolist() for tensor in _unpadded(inputs, r)] for r in set(row.tolist())}
        rows = []
        for place, r in enumerate(row.tolist()):
            prompt, completion = texts[r]
            values = {name: column[place] for name, column in columns.items()}
            found = self.alternatives.get((index, r, values["position"]))
            text = describe_token(
                self.trainer._tokenizer, prompt + completion, len(prompt) + values["position"], found
            )
            threshold = edit.quadrants[1] if edit.quadrants else None
            rows.append(self._ids(index, r) | values | text | {"entropy_threshold": threshold})
        return rows

    def _completion_row(self, index: int, row: int) -> dict:
        inputs, (logps, entropies, _), tokenizer = self.inputs[index], self.seen[index], self.trainer._tokenizer
        prompt, completion = _unpadded(inputs, row)
        length = len(completion)
        return self._ids(index, row) | {
            "prompt": tokenizer.decode(prompt.tolist()),
            "tokens": [decode(tokenizer, token) for token in completion.tolist()],
            "probs": logps[row, :length].exp().tolist(),
            "entropies": entropies[row, :length].tolist(),
            "silenced": (~self.edit.keep_masks[index][row, :length]).tolist(),
            "advantage": spread_advantages(inputs)[row].flatten()[0].item(),
        }

    def _ids(self, index: int, row: int) -> dict:
        step, inputs = self.trainer.state.global_step + 1, self.inputs[index]
        return {
            "step": step,
            "completion_id": f"{step}-{self.trainer.accelerator.process_index}-{index}-{row}",
            "problem_id": inputs["problem_ids"][row] if "problem_ids" in inputs else None,
            "reward": inputs["rewards"][row].item() if "rewards" in inputs else None,
        }


def get_problem_id(example: dict[str, Any]) -> str:
    """`problem_id` of a row of the dataset; without one, a checksum of its prompt."""
    if example.get("problem_id") is not None:
        return str(example["problem_id"])
    return f"prompt-{zlib.crc32(json.dumps(example.get('prompt'), default=str).encode()):08x}"


def describe_token(tokenizer, ids: list[int], at: int, found: tuple[list[int], list[float]] | None) -> dict:
    """Columns of the token log that are text: the token, what stands around it, and the alternatives if they are known."""
    return {
        "token": decode(tokenizer, ids[at]),
        "before": tokenizer.decode(ids[max(0, at - TEXT_BEFORE) : at]),
        "after": tokenizer.decode(ids[at + 1 : at + 1 + TEXT_AFTER]),
        "top_tokens": [decode(tokenizer, token) for token in found[0]] if found else None,
        "top_probs": found[1] if found else None,
    }


def decode(tokenizer, token_id: int) -> str:
    """Text of one token; the vocabulary's own spelling where the token is a part of a character."""
    text = tokenizer.decode([token_id])
    return tokenizer.convert_ids_to_tokens(token_id) if "\ufffd" in text else text


def _positions(mask: torch.Tensor) -> list[int]:
    return mask.nonzero().squeeze(1).tolist()


def _ratios(inputs: dict[str, Any], logps: torch.Tensor) -> torch.Tensor:
    old = inputs.get("old_per_token_logps")
    return torch.ones_like(logps) if old is None else (logps - old).exp()


def _by_token(advantages: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """(B,) or (B, T) as (B, T)."""
    return (advantages.unsqueeze(1) if advantages.dim() == 1 else advantages).expand(like.shape)


def _unpadded(inputs: dict[str, Any], row: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Prompt and completion of a row, without padding."""
    prompt = inputs["prompt_ids"][row][inputs["prompt_mask"][row].bool()]
    return prompt, inputs["completion_ids"][row][: int(inputs["completion_mask"][row].sum())]
