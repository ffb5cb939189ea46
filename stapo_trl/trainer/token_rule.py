"""
[`TokenRuleTrainer`]: TRL's GRPOTrainer with a token rule, which masks tokens or changes their advantages.

A rule sees all tokens of an optimizer step, which TRL cuts into micro-batches on several processes. So a step of several
micro-batches is scored without gradients before its first backward pass; in a step of one, the forward of the loss gives
the scores.
"""

import dataclasses
import inspect
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from accelerate.utils import is_peft_model
from torch import nn
from transformers import PreTrainedModel
from trl import GRPOConfig, GRPOTrainer
from trl.models.utils import disable_gradient_checkpointing

from ..observe.dynamics import describe_quadrants
from ..observe.recorder import StepRecord, capture_sum_sq, get_problem_id
from ..observe.token_log import TokenLog
from ..observe.trackers import show_tokens
from ..rewards import warn_if_void
from ..rewards.advantages import have_spread
from ..rules.tokens import MIN_ADVANTAGE, Rule, spread_advantages
from .collectives import sum_over_processes
from .compat import check_base_trainer, check_environment
from .nonfinite import FiniteStepTrainer
from .optimizer_step import EditedStep, edit_step
from .preflight import check_dataset, check_loss_scaling, check_output_dir, check_policy, check_reward_columns
from .stapo_config import check_learning_rate, check_token_rule


TEXT = ("prompt_ids", "prompt_mask", "completion_ids", "completion_mask")
IMAGES = set(inspect.signature(GRPOTrainer._get_per_token_logps_and_entropies).parameters)


class Forward(NamedTuple):
    """A forward pass that was made for the loss before the loss asks for it."""

    question: tuple  # model, input ids, attention mask, options
    answer: tuple  # log-probs, entropies, auxiliary loss

    def answers(self, model: nn.Module, input_ids: torch.Tensor, attention_mask: torch.Tensor, options: dict) -> bool:
        own_model, own_ids, own_mask, own_options = self.question
        asked = {name: value for name, value in options.items() if value is not None}
        return (
            model is own_model
            and asked.keys() == own_options.keys()
            and all(value is own_options[name] or name == "logits_to_keep" for name, value in asked.items())
            and torch.equal(input_ids, own_ids)
            and torch.equal(attention_mask, own_mask)
        )


class TokenRuleTrainer(FiniteStepTrainer):
    """
    [`~trl.GRPOTrainer`] whose loss is that of edited tokens. Its arguments are those of [`STAPOTrainer`].

    Attributes:
        token_rule ([`~stapo_trl.rules.tokens.Rule`], *optional*): the rule. With `None` the trainer is GRPOTrainer
            exactly.
        token_log ([`~stapo_trl.observe.token_log.TokenLog`], *optional*): with `log_tokens`, what becomes `token_log/`.
        silenced_token_ids (`Counter`): how often this process silenced each token of the vocabulary in training.
    """

    def __init__(
        self,
        model: str | PreTrainedModel | nn.Module,
        reward_funcs: Callable | str | PreTrainedModel | list | None,
        args: GRPOConfig,
        train_dataset=None,
        *more,
        token_rule: Rule | None = None,
        **kwargs,
    ):
        check_base_trainer(GRPOTrainer)
        check_environment(uses_peft=kwargs.get("peft_config") is not None)
        check_learning_rate(args)
        if token_rule is not None:
            check_token_rule(token_rule, args)
        # Other sources of prompts or columns than the dataset are TRL's to check
        if kwargs.get("environment_factory") is None and kwargs.get("rollout_func") is None:
            check_dataset(train_dataset, args)
            check_reward_columns(train_dataset, reward_funcs)
        self.token_rule = token_rule
        self.token_log = None
        self.silenced_token_ids = Counter()
        self._step_inputs = iter(())  # of the current optimizer step: prepared when its first micro-batch is asked for
        self._forward = None  # the pass that the loss is about to ask for
        self._draws = False  # whether the policy's passes were seen to draw random numbers
        self._old_scores = None  # log-probs and entropies of each pass of the policy, while completions are generated
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
        if token_rule is not None and args.log_tokens:
            settings = dataclasses.asdict(token_rule) if dataclasses.is_dataclass(token_rule) else {}
            settings |= {"rule": type(token_rule).__name__, "model": self.model.config.name_or_path}
            self.token_log = TokenLog(args.output_dir, args.process_index, {k: str(v) for k, v in settings.items()})
            self.add_callback(self.token_log)
        warn_if_void(self.reward_funcs, args.mask_truncated_completions)

    # ---- The loss -------------------------------------------------------------------------------------------------

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        """GRPO's loss of the edited tokens."""
        if self.token_rule is None or return_outputs:
            return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)

        step, index = inputs.get("edited_step", (None, 0))
        if step is not None and step.rng_states[index] is not None:
            set_rng_state(step.rng_states[index], self.accelerator.device)  # the dropout that the rule saw
        with capture_sum_sq(self) as sums_sq:
            forward = self._score(model, inputs, compute_aux_loss=self.aux_loss_enabled)
        logps, entropies, _ = forward.answer
        if step is None:  # the only micro-batch of its step
            step = self._edit_step([inputs], [(logps, entropies)], [None])
        self._forward = forward
        try:
            loss = super().compute_loss(model, step.apply(index, inputs), return_outputs, num_items_in_batch)
        finally:
            self._forward = None
        step.record.observe(logps, entropies, sums_sq)
        if step.record.is_complete:
            self._log_step(step.record)
        return loss

    def _score(self, model: nn.Module, inputs: dict[str, Any], compute_aux_loss: bool = False) -> Forward:
        """The pass that TRL's loss makes: log-probs (B, T), entropies (B, T) in nats, auxiliary loss or `None`."""
        input_ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], dim=1)
        attention_mask = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], dim=1)
        options = {"compute_entropy": True, "compute_aux_loss": compute_aux_loss} | _images(inputs)
        options["logits_to_keep"] = inputs["completion_ids"].size(1)
        answer = self._get_per_token_logps_and_entropies(model, input_ids, attention_mask, **options)
        if answer[1] is None:
            raise RuntimeError(
                "The forward pass returned no entropies, which a token rule needs: GRPOTrainer was patched (by "
                "Unsloth?), so run the script without that patch."
            )
        return Forward((model, input_ids, attention_mask, options), answer)

    def _get_per_token_logps_and_entropies(
        self, model, input_ids, attention_mask, logits_to_keep, batch_size=None, **options
    ):
        if self._forward is not None:
            if self._forward.answers(model, input_ids, attention_mask, options | {"logits_to_keep": logits_to_keep}):
                answer, self._forward = self._forward.answer, None
                return answer
        of_policy = self._old_scores is not None and model is self.model
        if of_policy:
            options["compute_entropy"] = True
            state = get_rng_state(self.accelerator.device)
        answer = super()._get_per_token_logps_and_entropies(
            model, input_ids, attention_mask, logits_to_keep, batch_size, **options
        )
        if of_policy and not self._has_drawn(state):
            self._old_scores.append(answer[:2])
        return answer

    def _log_step(self, record: StepRecord) -> None:
        """Log what only the passes of the loss show, as they cover every valid token. Collective."""
        sums = sum_over_processes(self.accelerator, record.sums())
        num_finite, num_nonfinite, sum_entropy, *quadrants = sums
        metrics = {"s2t/nonfinite": num_nonfinite}
        if num_finite > 0:
            metrics["s2t/entropy"] = sum_entropy / num_finite
        if quadrants and record.edit.quadrants is not None:
            described = describe_quadrants(torch.tensor(quadrants, dtype=torch.float64).view(3, 4, 6))
            shown = ("share", "gradient_norm", "gradient_share", "entropy_change")
            metrics |= {f"s2t/{name}": x for name, x in described.items() if name.rpartition("/")[2] in shown}
        self._record_metrics(metrics)
        if self.model.training and self.token_log is not None:
            self.token_log.add(*record.rows())

    # ---- The optimizer step ---------------------------------------------------------------------------------------

    def train(self, *args, **kwargs):
        self.silenced_token_ids = Counter()
        return super().train(*args, **kwargs)

    def get_batch_samples(self, epoch_iterator: Iterator, num_batches: int, device: torch.device):
        """Called once for each optimizer step, before its first micro-batch."""
        batch_samples, num_items_in_batch = super().get_batch_samples(epoch_iterator, num_batches, device)
        self._forget_old_entropies()
        is_cut = self.token_rule is not None and len(batch_samples) > 1
        self._step_inputs = self._prepare_step(batch_samples) if is_cut else iter(())
        return batch_samples, num_items_in_batch

    def _forget_old_entropies(self) -> None:
        """Whatever TRL's buffer holds was generated before the coming optimizer step: the policy has moved since."""
        for batch in self._buffered_inputs or ():
            batch.pop("old_entropies", None)

    def _prepare_inputs(self, generation_batch):
        prepared = next(self._step_inputs, None) if self.model.training else None
        return super()._prepare_inputs(generation_batch) if prepared is None else prepared

    def _prepare_step(self, micro_batches: list) -> Iterator[dict[str, Any]]:
        """The inputs of the micro-batches of a step, each with its edit. No weight changes before they are all used."""
        first_step, inputs = self._step, []
        try:
            for offset, micro_batch in enumerate(micro_batches):
                self._step = first_step + offset  # tells TRL when to generate, and which slice comes next
                inputs.append(super()._prepare_inputs(micro_batch))
        finally:
            self._step = first_step
        step = self._edit_step(inputs, *self._score_step(inputs))
        for index, batch in enumerate(inputs):
            yield {**batch, "edited_step": (step, index)}

    def _edit_step(self, inputs: list[dict], scores: list[tuple], rng_states: list) -> EditedStep:
        """Apply the rule to an optimizer step, and log what it did. Collective."""
        seed = self.args.seed + self.state.global_step
        step = edit_step(self.token_rule, inputs, scores, self.accelerator, seed)
        step.rng_states = rng_states
        step.record = StepRecord(self, inputs, step.edit)
        self._record_metrics(step.metrics)
        if self.model.training:
            for batch, keep_mask in zip(inputs, step.edit.keep_masks, strict=True):
                ids, counts = batch["completion_ids"][~keep_mask].unique(return_counts=True)
                self.silenced_token_ids.update(dict(zip(ids.tolist(), counts.tolist(), strict=True)))
        return step

    @torch.no_grad()
    def _score_step(self, inputs: list[dict[str, Any]]) -> tuple[list[tuple], list]:
        """
        Log-probs and entropies (B, T) of each micro-batch under the current policy, and the state of the generators from
        which its loss will see the same dropout; `None` for a policy that draws no random numbers. Collective.

        Whether a policy draws, only a pass can tell: adapters do it in many ways.
        """
        device = self.accelerator.device
        before = get_rng_state(device)
        with disable_gradient_checkpointing(self.model, self.args.gradient_checkpointing_kwargs):
            if not self._draws:
                scores = [self._score_rows(batch) for batch in inputs]
                self._draws = self._has_drawn(before)
                if not self._draws:
                    return scores, [None] * len(inputs)
                set_rng_state(before, device)
            scores, rng_states = [], []
            for batch in inputs:  # all rows, as in the loss, so that it draws the same numbers
                rng_states.append(get_rng_state(device))
                scores.append(self._score(self.model, batch).answer[:2])
        return scores, rng_states

    def _score_rows(self, inputs: dict[str, Any]) -> tuple[torch.Tensor, torch.Tensor]:
        """Scores (B, T) of the responses that the rule looks at; zero, which no rule is handed, in the others."""
        if "old_entropies" in inputs:  # scored when it was generated, by this policy
            return inputs["old_per_token_logps"], inputs["old_entropies"]
        if not self.token_rule.positive_only or _images(inputs):
            return self._score(self.model, inputs).answer[:2]
        advantages = spread_advantages(inputs)
        rows = (advantages > MIN_ADVANTAGE).reshape(len(advantages), -1).any(1).nonzero().squeeze(1)
        logps = torch.zeros(inputs["completion_ids"].shape, device=rows.device)
        entropies = torch.zeros_like(logps)
        if len(rows) > 0:
            batch = {name: inputs[name][rows] for name in TEXT}
        elif self.accelerator.num_processes > 1:
            # The forward of a sharded model is collective: a rank with nothing to score makes the cheapest one
            batch = {name: inputs[name][:1, -1:] if "prompt" in name else inputs[name][:1, :1] for name in TEXT}
        else:
            return logps, entropies
        scores = self._score(self.model, batch).answer
        if len(rows) > 0:
            logps, entropies = logps.to(scores[0].dtype), entropies.to(scores[1].dtype)
            logps[rows], entropies[rows] = scores[0], scores[1]
        return logps, entropies

    def _has_drawn(self, rng_state: list[torch.Tensor]) -> bool:
        """Whether the generators of any process have moved from this state. Collective."""
        now = get_rng_state(self.accelerator.device)
        moved = not all(map(torch.equal, rng_state, now))
        return sum_over_processes(self.accelerator, [float(moved)])[0] > 0

    # ---- Generation -----------------------------------------------------------------------------------------------

    def _generate_and_score_completions(self, inputs):
        """Adds what the rule and the token log need of each completion to TRL's batch, which it shuffles and splits."""
        if self.token_rule is None:
            return super()._generate_and_score_completions(inputs)
        self._old_scores = []
        try:
            output = super()._generate_and_score_completions(inputs)
            for logps, entropies in self._old_scores:
                if output.get("old_per_token_logps") is logps:
                    output["old_entropies"] = entropies
        finally:
            self._old_scores = None
        rows = len(output["advantages"])
        own = slice(self.accelerator.process_index * rows, (self.accelerator.process_index + 1) * rows)
        rewards = (self._rewards * self.reward_weights.to(self._rewards.device)).nansum(1)
        terms = self._rewards
        if self.multi_objective_aggregation == "sum_then_normalize":
            terms = rewards.masked_fill(self._rewards.isnan().all(1), torch.nan).unsqueeze(1)
        group_size = self.num_generations if self.model.training else self.num_generations_eval
        output["has_spread"], output["rewards"] = have_spread(terms, group_size)[own], rewards[own]
        output["problem_ids"] = [get_problem_id(example) for example in inputs]
        return output

    def _calculate_rewards(self, inputs, prompts, completions, completion_ids_list):
        self._rewards = super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)
        # TRL turns an infinite reward into a group of zero advantages without a word
        if self._rewards.isinf().any():
            name = self.reward_func_names[int(self._rewards.isinf().any(0).nonzero()[0])]
            raise ValueError(
                f"The reward function '{name}' returned an infinite reward. Return a finite number, or None for a "
                "completion that cannot be scored."
            )
        return self._rewards

    # ---- Metrics and checkpoints ----------------------------------------------------------------------------------

    def _record_metrics(self, metrics: dict[str, float]) -> None:
        for name, value in metrics.items():
            self._metrics["train" if self.model.training else "eval"][name].append(value)

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        super().log(logs, start_time)
        if self.token_log is not None and self.model.training and self.accelerator.is_main_process:
            show_tokens(self)

    def _save_checkpoint(self, model, trial):
        if self.token_log is not None:
            self.token_log.write()
        super()._save_checkpoint(model, trial)

    def get_resume_state(self) -> dict[str, Any]:
        state = super().get_resume_state() | {"silenced_token_ids": dict(self.silenced_token_ids)}
        if hasattr(self.token_rule, "state_dict"):
            state["token_rule"] = self.token_rule.state_dict()
        return state

    def set_resume_state(self, state: dict[str, Any]) -> None:
        super().set_resume_state(state)
        self._forget_old_entropies()
        self.silenced_token_ids = Counter(state["silenced_token_ids"])
        if "token_rule" in state:
            self.token_rule.load_state_dict(state["token_rule"])


def _images(inputs: dict[str, Any]) -> dict[str, Any]:
    """What a micro-batch with images hands to TRL's forward besides the text."""
    return {name: inputs[name] for name in IMAGES if inputs.get(name) is not None}


def get_rng_state(device: torch.device) -> list[torch.Tensor]:
    """State of the CPU's generator, followed by the one of `device` where that is another."""
    states = [torch.get_rng_state()]
    return states if device.type == "cpu" else [*states, torch.get_device_module(device).get_rng_state(device)]


def set_rng_state(states: list[torch.Tensor], device: torch.device) -> None:
    torch.set_rng_state(states[0])
    for state in states[1:]:
        torch.get_device_module(device).set_rng_state(state, device)
