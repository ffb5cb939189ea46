"""
[`STAPOTrainer`]: TRL's GRPOTrainer with a mask over spurious tokens.

What differs from GRPO is the keep mask that `compute_loss` multiplies into the loss. The other overrides exist because
the mask needs the whole mini-batch before its first backward pass: a mini-batch is one optimizer step, TRL cuts it into
micro-batches on several processes (a *window* below), and the entropy quantile is taken over all of them.
"""

import inspect
import math
import textwrap
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import fields
from typing import Any, NamedTuple

import torch
from accelerate.utils import is_peft_model
from torch import nn
from transformers import PreTrainedModel
from trl import GRPOConfig, GRPOTrainer
from trl.models.utils import disable_gradient_checkpointing
from trl.trainer.utils import get_config_model_id

from ..observe.dynamics import describe_quadrants
from ..observe.recorder import TokenRecorder, get_problem_id
from ..observe.token_log import TokenLog
from ..observe.trackers import show_tokens
from ..rewards import warn_if_void
from ..rewards.advantages import have_spread
from ..rules import s2t
from .collectives import sum_over_processes
from .compat import check_base_trainer, check_environment
from .dropout import get_rng_state, has_dropout, replay
from .nonfinite import FiniteSteps
from .optimizer_step import Silenced, loss_mask, silence, spread_advantages
from .preflight import check_dataset, check_loss_scaling, check_output_dir, check_policy, check_reward_columns
from .resume import ExactResume
from .stapo_config import STAPOConfig


class _Silencing(NamedTuple):
    """What a micro-batch of a longer window carries to `compute_loss`."""

    keep_mask: torch.Tensor  # (B, T) boolean, True = trained
    num_kept: float  # tokens of the whole window and all processes
    num_valid: float  # the same, silenced ones included
    rng_state: tuple[torch.Tensor, ...] | None  # of the generators when the micro-batch was scored
    is_last: bool  # of its window


class STAPOTrainer(ExactResume, FiniteSteps, GRPOTrainer):
    r"""
    Trainer for Spurious-Token-Aware Policy Optimization, [STAPO](https://huggingface.co/papers/2602.15620): GRPO in
    which improbable, low-entropy tokens of correct responses leave both the sum of the loss and its normaliser (fifth
    version of the paper, section on S2T).

    It is used exactly as [`~trl.GRPOTrainer`], with [`STAPOConfig`] in place of [`~trl.GRPOConfig`]. The probability
    and the entropy are those of the current policy in the trainer's own forward pass, after the sampling temperature.
    In a mini-batch that is cut into several micro-batches, the responses with a positive advantage are scored once more
    without gradients before the first backward pass; a mini-batch of one micro-batch costs no extra forward.

    With several optimizer steps per generation, TRL divides each step of the `dapo`, `cispo` and `vespo` losses by the
    *average* token count of the steps. That convention is kept, and scaled by the share of tokens kept in this step.

    Args:
        model, reward_funcs, train_dataset, and every other argument:
            As in [`~trl.GRPOTrainer`], in the same order.
        args ([`STAPOConfig`] or [`~trl.GRPOConfig`], *optional*):
            Configuration. A plain `GRPOConfig` is accepted and trained with STAPO's default thresholds.

    Raises:
        `ValueError`: if the dataset has no prompt column, lacks a column that a reward function asks for, or holds
        fewer prompts than one generation batch; if the policy cannot learn or read its prompts; if checkpoints cannot
        be written.
        `RuntimeError`: if TRL was patched by Unsloth, or changed one of the methods this class relies on.

    Example:

    ```python
    from datasets import load_dataset
    from stapo_trl import STAPOConfig, STAPOTrainer
    from stapo_trl.rewards import math_accuracy_reward

    trainer = STAPOTrainer(
        model="Qwen/Qwen3-0.6B-Base",
        reward_funcs=math_accuracy_reward,
        args=STAPOConfig(output_dir="run"),
        train_dataset=load_dataset("trl-lib/DeepMath-103K", split="train"),
    )
    trainer.train()
    ```
    """

    _tag_names = ["trl", "stapo"]
    _name = "STAPO"
    _paper = {
        "title": "STAPO: Stabilizing Reinforcement Learning for LLMs by Silencing Rare Spurious Tokens",
        "id": "2602.15620",
        # docstyle-ignore
        "citation": textwrap.dedent("""\
            @article{liu2026stapo,
                title        = {{STAPO: Stabilizing Reinforcement Learning for LLMs by Silencing Rare Spurious Tokens}},
                author       = {Shiqi Liu and Zeyu He and Guojian Zhan and Letian Tao and Zhilong Zheng and Jiang Wu and Yinuo Wang and Yang Guan and Kehua Sheng and Bo Zhang and Keqiang Li and Jingliang Duan and Shengbo Eben Li},
                year         = 2026,
                eprint       = {arXiv:2602.15620},
            }"""),
    }

    def __init__(
        self,
        model: str | PreTrainedModel | nn.Module,
        reward_funcs: Callable | str | PreTrainedModel | list | None = None,
        args: GRPOConfig | None = None,
        train_dataset=None,
        *more,
        **kwargs,
    ):
        check_base_trainer(GRPOTrainer)
        check_environment(uses_peft=kwargs.get("peft_config") is not None)
        if args is None:
            model_name = model if isinstance(model, str) else get_config_model_id(model.config)
            args = STAPOConfig(f"{model_name.split('/')[-1]}-STAPO")
        for field in fields(STAPOConfig):
            if field.name not in GRPOConfig.__dataclass_fields__:
                setattr(self, field.name, getattr(args, field.name, field.default))
        self.silences = self.s2t_prob_threshold > 0.0

        # Other sources of prompts or columns than the dataset are TRL's to check
        if kwargs.get("environment_factory") is None and kwargs.get("rollout_func") is None:
            check_dataset(train_dataset, args)
            check_reward_columns(train_dataset, reward_funcs)

        self.silenced_token_ids = Counter()  # of this process, in training
        self._micro_batches = []  # raw micro-batches of a window that is not scored yet
        self._window = deque()  # scored inputs of the current window, in order
        self._forward = None  # [] while a loss is computed, then [the result of its one forward]
        self._first_scores = None  # [] while completions are generated, then [TRL's scores of the old policy]
        self._forward_stats = []  # sums of each micro-batch of a window so far, for the metrics
        super().__init__(model, reward_funcs, args, train_dataset, *more, **kwargs)
        check_output_dir(self.args)
        is_own_rollout = kwargs.get("rollout_func") is not None
        check_policy(self.model, self.processing_class, None if is_own_rollout else train_dataset)
        if args.fp16 and not (self.is_deepspeed_enabled or self.is_fsdp_enabled):
            if is_peft_model(self.model):
                # TRL casts the adapter of a quantised model to bf16, whose gradients the loss scaler cannot read
                for parameter in self.model.parameters():
                    if parameter.requires_grad:
                        parameter.data = parameter.data.float()
            check_loss_scaling(self.model)
        self._has_dropout = has_dropout(self.model)
        self.token_log = None
        if self.silences and self.log_tokens:
            settings = {"prob_threshold": str(self.s2t_prob_threshold), "selection": self.s2t_selection}
            settings |= {"entropy_quantile": str(self.s2t_entropy_quantile), "model": self.model.config.name_or_path}
            self.token_log = TokenLog(args.output_dir, args.process_index, settings)
            self.add_callback(self.token_log)
        self._recorder = TokenRecorder(self)
        warn_if_void(self.reward_funcs, args.mask_truncated_completions)

    # ---- The loss -------------------------------------------------------------------------------------------------

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        """GRPO's loss over the tokens that are kept: silenced tokens leave the sum and the normaliser."""
        if not self.silences or return_outputs:
            return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)

        silencing = inputs.get("silencing")
        self._forward = []
        try:
            with self._recorder.capture_sum_sq() as sums_sq:
                if silencing is None:
                    # A window of one micro-batch: the forward of the loss runs first, and the parent is handed its result
                    logps, entropies, _ = self._score_tokens(model, inputs, compute_aux_loss=self.aux_loss_enabled)
                    silenced = self._silence([inputs], [(logps, entropies)])
                    (keep_mask,) = silenced.keep_masks
                    silencing = _Silencing(keep_mask, silenced.num_kept, silenced.num_valid, None, is_last=True)
                # The completion mask is also the attention mask, so the loss is masked through the other factor of
                # TRL's loss mask. The kept count is rounded once, from float64.
                mask = silencing.keep_mask.to(inputs["completion_mask"].dtype)
                num_items = inputs["num_items_in_batch"].item() * silencing.num_kept / max(silencing.num_valid, 1)
                masked = {
                    **inputs,
                    "tool_mask": inputs.get("tool_mask", 1) * mask,
                    "num_items_in_batch": torch.tensor(num_items, device=mask.device),
                }
                with replay(silencing.rng_state, self.accelerator.device):
                    loss = super().compute_loss(model, masked, return_outputs, num_items_in_batch)
            self._log_forward(inputs, *self._forward[0][:2], sums_sq, silencing.is_last)
        finally:
            self._forward = None
        return loss

    def _get_per_token_logps_and_entropies(self, model, *args, **kwargs):
        """TRL's forward, shared by all who need the same one: the mask, the loss, and the metrics."""
        if self._forward:
            return self._forward[0]
        if self._first_scores == [] and model is self.model:
            kwargs["compute_entropy"] = True
        result = super()._get_per_token_logps_and_entropies(model, *args, **kwargs)
        if kwargs.get("compute_entropy") and result[1] is None:
            raise RuntimeError(
                "The forward pass returned no entropies, which STAPO needs: GRPOTrainer was patched (by Unsloth?), so "
                "run the script without that patch."
            )
        for memo in (self._forward, self._first_scores):
            if memo == []:
                memo.append(result)
        return result

    def _score_tokens(self, model, inputs, compute_aux_loss=False):
        """The forward that TRL's loss makes: log-probs (B, T), entropies (B, T) in nats, auxiliary loss or None."""
        return self._get_per_token_logps_and_entropies(
            model,
            torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], dim=1),
            torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], dim=1),
            inputs["completion_ids"].size(1),
            compute_entropy=True,
            compute_aux_loss=compute_aux_loss,
            **_image_inputs(inputs),
        )

    # ---- The window -----------------------------------------------------------------------------------------------

    def get_batch_samples(self, epoch_iterator: Iterator, num_batches: int, device: torch.device):
        """Called once per optimizer step, before its first micro-batch: remembers which micro-batches it has."""
        batch_samples, num_items_in_batch = super().get_batch_samples(epoch_iterator, num_batches, device)
        self._window.clear()
        self._forward_stats = []
        self._micro_batches = batch_samples if self.silences and len(batch_samples) > 1 else []
        return batch_samples, num_items_in_batch

    def _prepare_inputs(self, generation_batch):
        if not self.model.training:
            return super()._prepare_inputs(generation_batch)
        if self._micro_batches:
            micro_batches, self._micro_batches = self._micro_batches, []
            self._window.extend(self._prepare_window(micro_batches))
        return self._window.popleft() if self._window else super()._prepare_inputs(generation_batch)

    def _prepare_window(self, micro_batches: list) -> list[dict[str, Any]]:
        """The inputs of a whole window, each with its keep mask. No weight changes before they are all used."""
        first_step = self._step
        try:
            inputs = []
            for offset, micro_batch in enumerate(micro_batches):
                self._step = first_step + offset  # tells TRL when to generate, and which slice comes next
                inputs.append(super()._prepare_inputs(micro_batch))
        finally:
            self._step = first_step

        with torch.no_grad(), disable_gradient_checkpointing(self.model, self.args.gradient_checkpointing_kwargs):
            rng_states, scores = [], []
            for batch in inputs:
                rng_states.append(get_rng_state(self.accelerator.device) if self._has_dropout else None)
                scores.append(self._score_candidates(batch))
        silenced, last = self._silence(inputs, scores), len(inputs) - 1
        counts = (silenced.num_kept, silenced.num_valid)
        return [
            {**batch, "silencing": _Silencing(keep_mask, *counts, rng_state, is_last=index == last)}
            for index, (batch, keep_mask, rng_state) in enumerate(
                zip(inputs, silenced.keep_masks, rng_states, strict=True)
            )
        ]

    def _score_candidates(self, inputs) -> tuple[torch.Tensor, torch.Tensor]:
        """
        Log-probs and entropies (B, T) of the current policy; zero (never a candidate) in responses left out.

        Only responses with a positive advantage can hold candidates. With dropout every response is scored, so that
        the loss, replayed from the same generator state, sees the same dropout masks.
        """
        if "old_entropies" in inputs and inputs["generated_at"] == self.state.global_step and not self._has_dropout:
            return inputs["old_per_token_logps"], inputs["old_entropies"]  # the policy has not moved since
        text = ("prompt_ids", "prompt_mask", "completion_ids", "completion_mask")
        if self._has_dropout or self.s2t_entropy_population == "all" or _image_inputs(inputs):
            return self._score_tokens(self.model, inputs)[:2]

        advantages = spread_advantages(inputs)
        rows = (advantages > s2t.MIN_ADVANTAGE).reshape(len(advantages), -1).any(1).nonzero().squeeze(1)
        logps = torch.zeros(inputs["completion_ids"].shape, device=rows.device)
        entropies = torch.zeros_like(logps)
        if len(rows) > 0:
            batch = {name: inputs[name][rows] for name in text}
        elif self.accelerator.num_processes > 1:
            # The forward of a sharded model is collective: a rank with nothing to score makes the cheapest one
            batch = {name: inputs[name][:1, -1:] if "prompt" in name else inputs[name][:1, :1] for name in text}
        else:
            return logps, entropies
        scores = self._score_tokens(self.model, batch)
        if len(rows) > 0:
            logps, entropies = logps.to(scores[0].dtype), entropies.to(scores[1].dtype)
            logps[rows], entropies[rows] = scores[0], scores[1]
        return logps, entropies

    def _generate_and_score_completions(self, inputs):
        """Adds which responses may have a positive advantage, and the entropies where TRL scores the policy anyway."""
        if not self.silences:
            return super()._generate_and_score_completions(inputs)
        self._first_scores = []
        try:
            output = super()._generate_and_score_completions(inputs)
            for logps, entropies, _ in self._first_scores:
                if output.get("old_per_token_logps") is logps:
                    output["old_entropies"] = entropies
                    output["generated_at"] = torch.tensor(self.state.global_step)
        finally:
            self._first_scores = None
        rows = len(output["advantages"])
        own = slice(self.accelerator.process_index * rows, (self.accelerator.process_index + 1) * rows)
        output["has_spread"], output["rewards"] = self._has_spread[own], self._summed_rewards[own]
        output["problem_ids"] = [get_problem_id(example) for example in inputs]
        return output

    # ---- Metrics and the token log --------------------------------------------------------------------------------

    def _silence(self, inputs: list[dict], scores: list[tuple]) -> Silenced:
        """The mask of one mini-batch over all processes, logged."""
        silenced = silence(
            self.accelerator,
            inputs,
            scores,
            self.s2t_prob_threshold,
            self.s2t_entropy_quantile,
            self.s2t_entropy_population,
            self.s2t_selection,
            seed=self.args.seed + self.state.global_step,
        )
        self._record(silenced.metrics)
        if self.model.training:
            for batch, keep_mask in zip(inputs, silenced.keep_masks, strict=True):
                self.silenced_token_ids.update(batch["completion_ids"][~keep_mask].tolist())
        self._recorder.start_step(inputs, silenced)
        return silenced

    def _log_forward(self, inputs: dict, logps, entropies, sums_sq: list | None, is_last: bool) -> None:
        """Log what only the loss's forward shows, as it covers every valid token; once per window."""
        entropies, valid = entropies.detach(), loss_mask(inputs).bool()
        finite = logps.isfinite() & entropies.isfinite()
        seen = valid & finite
        self._forward_stats += [torch.where(seen, entropies, 0).sum(), seen.sum(), (valid & ~finite).sum()]
        # A forward that is not TRL's fused one (a compiled model's) gives no sums, and the step no quadrants
        sums_sq = sums_sq[0][:, -logps.size(1) :] if sums_sq else None
        self._recorder.observe(inputs, logps, entropies, sums_sq)
        if not is_last:
            return
        stats = [sum(self._forward_stats[i::3]) for i in range(3)]
        quadrants = [] if sums_sq is None else [*self._recorder.sum_quadrants().flatten()]
        sum_entropy, num_finite, num_nonfinite, *quadrants = sum_over_processes(self.accelerator, stats + quadrants)
        self._forward_stats = []
        self._record({"s2t/nonfinite": num_nonfinite})
        if num_finite > 0:
            self._record({"s2t/entropy": sum_entropy / num_finite})
        if quadrants and math.isfinite(self._recorder.silenced.quadrant_threshold):
            described = describe_quadrants(torch.tensor(quadrants, dtype=torch.float64).view(3, 4, 6))
            shown = ("share", "gradient_norm", "gradient_share", "entropy_change")
            self._record({f"s2t/{name}": x for name, x in described.items() if name.rpartition("/")[2] in shown})
        if self.model.training and self.token_log is not None:
            self.token_log.add(*self._recorder.rows())

    def _record(self, metrics: dict[str, float]) -> None:
        for name, value in metrics.items():
            self._metrics["train" if self.model.training else "eval"][name].append(value)

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        super().log(logs, start_time)
        if self.token_log is not None and self.model.training and self.accelerator.is_main_process:
            show_tokens(self)

    # ---- Rewards ----------------------------------------------------------------------------------------------------

    def _calculate_rewards(self, inputs, prompts, completions, completion_ids_list):
        rewards_per_func = super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)
        # TRL turns an infinite reward into a group of zero advantages without a word
        if rewards_per_func.isinf().any():
            name = self.reward_func_names[int(rewards_per_func.isinf().any(0).nonzero()[0])]
            raise ValueError(
                f"The reward function '{name}' returned an infinite reward. Return a finite number, or None for a "
                "completion that cannot be scored."
            )
        rewards = rewards_per_func
        self._summed_rewards = (rewards * self.reward_weights.to(rewards.device)).nansum(1)
        if self.multi_objective_aggregation == "sum_then_normalize":
            abstained = rewards.isnan().all(1, keepdim=True)
            rewards = self._summed_rewards.unsqueeze(1).masked_fill(abstained, torch.nan)
        group_size = self.num_generations if self.model.training else self.num_generations_eval
        self._has_spread = have_spread(rewards, group_size)
        return rewards_per_func


def _image_inputs(inputs: dict[str, Any]) -> dict[str, Any]:
    """What a micro-batch with images hands to TRL's forward besides the text."""
    parameters = inspect.signature(GRPOTrainer._get_per_token_logps_and_entropies).parameters
    return {name: inputs[name] for name in parameters if name in inputs}
