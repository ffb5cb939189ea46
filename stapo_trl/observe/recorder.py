"""What a trainer remembers of the tokens of each optimizer step: rows for the token log, sums for the metrics."""

import json
import zlib
from contextlib import nullcontext
from typing import Any

import torch
from accelerate.utils import is_peft_model
from trl.models.utils import disable_gradient_checkpointing

from ..rules.s2t import token_keys
from ..trainer.optimizer_step import Silenced, loss_mask, spread_advantages
from .dynamics import gradient_norm_sq, gradient_weights, sum_quadrants
from .fused_head import capture_sum_sq, find_alternatives


# A row of the log costs about a hundred bytes on disk and 50 microseconds
SAMPLED_CANDIDATES = 16  # kept candidates a step and process
SAMPLED_OTHERS = 32  # other valid tokens, in the steps with statistics
SHOWN_RESPONSES = 4  # responses whose tokens get alternatives, in the steps with statistics
SHOWN_POSITIONS = 16  # at most, in each of them
TEXT_BEFORE, TEXT_AFTER = 32, 12  # tokens of context
CLIPPED_LOSSES = ("grpo", "bnpo", "dr_grpo", "dapo", "luspo")


class TokenRecorder:
    """
    Records one optimizer step after the other. Every process makes the same calls, whatever it holds.

    Args:
        trainer ([`STAPOTrainer`]):
            Its model, tokenizer and settings are read.
    """

    def __init__(self, trainer):
        self.trainer = trainer
        self.start_step(None, None)

    @property
    def has_statistics(self) -> bool:
        """Whether this optimizer step is one in which statistics are taken: the first and every n-th after it."""
        every = self.trainer.token_stats_steps
        return self.trainer.model.training and every > 0 and self.trainer.state.global_step % every == 0

    def capture_sum_sq(self):
        """In steps with statistics, a context in which TRL's head gives one more number for each position."""
        trainer = self.trainer
        if not self.has_statistics:
            return nullcontext()
        model = trainer.accelerator.unwrap_model(trainer.model)
        model = model.get_base_model() if is_peft_model(model) else model
        return capture_sum_sq(model, trainer.temperature, trainer.args.cast_lm_head_to_fp32)

    def start_step(self, inputs: list[dict] | None, silenced: Silenced | None) -> None:
        """Once the mask of a step is known, and before its weights change: look up what else was probable."""
        self.silenced = silenced
        self.seen = []  # (inputs, logps, entropies, gradient norms or None) of each micro-batch so far
        self.shown = []  # (micro-batch, row) of the responses that are logged whole
        self.alternatives = {}  # (micro-batch, row, position): (ids, probs)
        if inputs and self.trainer.token_log is not None and self.has_statistics:
            self._look_up_alternatives(inputs)

    def _look_up_alternatives(self, inputs: list[dict[str, Any]]) -> None:
        rows = []  # with silenced tokens first, then those with candidates
        for index, (keep, candidate) in enumerate(
            zip(self.silenced.keep_masks, self.silenced.candidates, strict=True)
        ):
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
                    keep, candidate = self.silenced.keep_masks[index][row], self.silenced.candidates[index][row]
                    positions = (~keep).nonzero().squeeze(1).tolist() + (candidate & keep).nonzero().squeeze(
                        1
                    ).tolist()
                    positions = positions[:SHOWN_POSITIONS] or [0]
                    prompt, completion = _unpadded(inputs[index], row)
                    with trainer.accelerator.autocast():
                        found = find_alternatives(
                            model,
                            torch.cat([prompt, completion]),
                            [len(prompt) + position for position in positions],
                            trainer.temperature,
                        )
                    self.alternatives |= {(index, row, p): pair for p, pair in zip(positions, found, strict=True)}
        finally:
            model.train(was_training)

    def observe(self, inputs: dict, logps: torch.Tensor, entropies: torch.Tensor, log_sum_sq_probs) -> None:
        """Keep what the forward of the loss gave for one micro-batch; nothing is moved here."""
        if self.trainer.model.training:
            logps = logps.detach()
            norms = None if log_sum_sq_probs is None else self._gradient_norms(inputs, logps, log_sum_sq_probs)
            self.seen.append((inputs, logps, entropies.detach(), norms))

    def sum_quadrants(self) -> torch.Tensor:
        """(3, 4, 6) sums of this process's tokens, see [`token_dynamics.sum_quadrants`]."""
        sums = [
            sum_quadrants(
                logps,
                entropies,
                norms,
                spread_advantages(inputs),
                loss_mask(inputs),
                self.trainer.s2t_prob_threshold,
                self.silenced.quadrant_threshold,
            )
            for inputs, logps, entropies, norms in self.seen
        ]
        return sum(sums)

    def _ratios(self, inputs: dict, logps: torch.Tensor) -> torch.Tensor:
        old = inputs.get("old_per_token_logps")
        return torch.ones_like(logps) if old is None else (logps - old).exp()

    def _gradient_norms(self, inputs: dict, logps: torch.Tensor, log_sum_sq_probs: torch.Tensor) -> torch.Tensor:
        trainer, ratios = self.trainer, self._ratios(inputs, logps)
        epsilons = (trainer.epsilon_low, trainer.epsilon_high)
        if trainer.loss_type not in CLIPPED_LOSSES:
            epsilons = (torch.inf, torch.inf)
        weights = gradient_weights(ratios, spread_advantages(inputs), *epsilons)
        return gradient_norm_sq(logps, log_sum_sq_probs, weights).sqrt()

    def rows(self) -> tuple[list[dict], list[dict]]:
        """Rows of this step for the token log, see [`token_log.TOKENS`] and [`token_log.COMPLETIONS`]."""
        tokens, completions = [], []
        num_candidates, num_others = SAMPLED_CANDIDATES, SAMPLED_OTHERS if self.has_statistics else 0
        for index, seen in enumerate(self.seen):
            share = len(self.seen) - index  # the samples that are left are spread over the micro-batches that are left
            chosen = self._choose(index, -(-num_candidates // share), -(-num_others // share))
            num_candidates -= len(chosen[1])
            num_others -= len(chosen[2])
            tokens += self._token_rows(index, *seen, torch.cat(chosen))
            if self.trainer.accelerator.is_main_process:
                completions += [self._completion_row(*seen, index, row) for shown, row in self.shown if shown == index]
        return tokens, completions

    def _choose(self, index: int, num_candidates: int, num_others: int) -> tuple[torch.Tensor, ...]:
        """(N, 2) rows and positions: every silenced token, and samples of kept candidates and of the others."""
        inputs, logps, entropies, _ = self.seen[index]
        keep, candidate = self.silenced.keep_masks[index], self.silenced.candidates[index]
        valid = loss_mask(inputs).bool() & logps.isfinite() & entropies.isfinite()
        keys = token_keys(inputs["completion_ids"], self.trainer.args.seed + self.trainer.state.global_step)

        def sample(mask: torch.Tensor, count: int) -> torch.Tensor:
            places = mask.nonzero()
            return places[keys[mask].topk(min(count, len(places)), largest=False).indices]

        return (~keep).nonzero(), sample(candidate & keep, num_candidates), sample(valid & ~candidate, num_others)

    def _token_rows(self, index, inputs, logps, entropies, norms, places) -> list[dict]:
        if len(places) == 0:
            return []
        tokenizer = self.trainer._tokenizer
        row, position = places.unbind(1)
        advantages = spread_advantages(inputs)
        if advantages.dim() == 1:
            advantages = advantages.unsqueeze(1).expand_as(logps)
        columns = {
            "prob": logps[row, position].exp(),
            "entropy": entropies[row, position],
            "advantage": advantages[row, position],
            "ratio": self._ratios(inputs, logps)[row, position],
            "candidate": self.silenced.candidates[index][row, position],
            "silenced": ~self.silenced.keep_masks[index][row, position],
            "token_id": inputs["completion_ids"][row, position],
            "position": position,
        }
        if norms is not None:
            columns["gradient_norm"] = norms[row, position]
        columns = {name: column.tolist() for name, column in columns.items()}
        threshold = self.silenced.quadrant_threshold
        texts = {r: [tensor.tolist() for tensor in _unpadded(inputs, r)] for r in set(row.tolist())}
        rows = []
        for place, r in enumerate(row.tolist()):
            prompt, completion = texts[r]
            values = {name: column[place] for name, column in columns.items()}
            at = len(prompt) + values["position"]
            ids = prompt + completion
            found = self.alternatives.get((index, r, values["position"]))
            rows.append(
                {
                    **self._ids(inputs, index, r),
                    **values,
                    **describe_token(tokenizer, ids, at, found),
                    "entropy_threshold": threshold if threshold < torch.inf else None,
                }
            )
        return rows

    def _completion_row(self, inputs, logps, entropies, _, index: int, row: int) -> dict:
        tokenizer = self.trainer._tokenizer
        prompt, completion = _unpadded(inputs, row)
        length = len(completion)
        advantages = spread_advantages(inputs)[row]
        return {
            **self._ids(inputs, index, row),
            "prompt": tokenizer.decode(prompt.tolist()),
            "tokens": [decode(tokenizer, token) for token in completion.tolist()],
            "probs": logps[row, :length].exp().tolist(),
            "entropies": entropies[row, :length].tolist(),
            "silenced": (~self.silenced.keep_masks[index][row, :length]).tolist(),
            "advantage": advantages.flatten()[0].item(),
        }

    def _ids(self, inputs: dict, index: int, row: int) -> dict:
        step = self.trainer.state.global_step + 1
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


def _unpadded(inputs: dict, row: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Prompt and completion of a row, without padding."""
    prompt = inputs["prompt_ids"][row][inputs["prompt_mask"][row].bool()]
    return prompt, inputs["completion_ids"][row][: int(inputs["completion_mask"][row].sum())]


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
