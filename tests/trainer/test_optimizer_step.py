"""One edit for all micro-batches of an optimizer step, at the price of few forward passes."""

import copy
import functools
from collections import Counter
from dataclasses import dataclass

import pytest
import torch
from peft import LoraConfig
from toys import SHAPES, content_reward, find_silenced, record_steps, reference_keep_mask, score, weights
from transformers import TrainerCallback
from trl import GRPOConfig, GRPOTrainer
from trl.trainer.utils import add_fused_lm_head

from stapo_trl import STAPOConfig, STAPOTrainer
from stapo_trl.arithmetic.problems import load_arithmetic
from stapo_trl.arithmetic.warm_start import build_model
from stapo_trl.rules.tokens import Edit


def train(trainer):
    trainer.train()
    return trainer


def record_forwards(trainer) -> list[tuple[bool, int]]:
    """Collects (with gradient, responses) of every forward pass of the policy that is not generation."""
    forwards = []

    def hook(module, args, kwargs):
        if "labels" in kwargs:
            forwards.append((torch.is_grad_enabled(), len(kwargs["input_ids"])))

    trainer.model.register_forward_pre_hook(hook, with_kwargs=True)
    return forwards


# ---- Cutting --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("selection", "loss_type"),
    [
        ("low_entropy", "dapo"),
        ("low_entropy", "grpo"),
        ("low_entropy", "dr_grpo"),
        ("high_entropy", "dapo"),
        ("random", "grpo"),
    ],
)
def test_cutting_a_batch_differently_gives_the_same_tokens_and_the_same_update(make_trainer, selection, loss_type):
    results = []
    for rows, accumulation in [(8, 1), (4, 2), (2, 4), (1, 8)]:
        trainer = make_trainer(
            per_device_train_batch_size=rows,
            gradient_accumulation_steps=accumulation,
            loss_type=loss_type,
            s2t_selection=selection,
            learning_rate=0.1,
            optim="sgd",
        )
        steps = record_steps(trainer)
        trainer.train()
        results.append((sorted(find_silenced(steps)), weights(trainer)))
    assert len(results[0][0]) > 2
    for silenced, weight in results[1:]:
        assert silenced == results[0][0]
        torch.testing.assert_close(weight, results[0][1])


def test_a_micro_batch_of_one_response_silences_what_the_whole_batch_does(make_trainer):
    # A quantile over each micro-batch alone would never silence a single candidate
    trainer = make_trainer(per_device_train_batch_size=1, gradient_accumulation_steps=8)
    steps = record_steps(trainer)
    trainer.train()
    assert find_silenced(steps)


def test_the_random_ablation_draws_anew_in_every_step(make_trainer):
    # Two steps with the same completions, policy and candidates
    trainer = make_trainer(s2t_selection="random", num_iterations=2, learning_rate=0.0)
    steps = record_steps(trainer)
    trainer.train()
    first, second = (find_silenced([step]) for step in steps)
    assert len(first) == len(second) > 2 and first != second


# ---- Optimizer steps of every shape ---------------------------------------------------------------------------------


STEPS = {
    "spans two generations": {"gradient_accumulation_steps": 4, "steps_per_generation": 2},
    "not aligned with generations": {"gradient_accumulation_steps": 4, "steps_per_generation": 6},
    "two iterations": {"gradient_accumulation_steps": 2, "steps_per_generation": 4, "num_iterations": 2},
    "the same micro-batch twice": {"gradient_accumulation_steps": 4, "steps_per_generation": 2, "num_iterations": 2},
    "short last step": {"gradient_accumulation_steps": 3, "steps_per_generation": 2, "num_train_epochs": 1},
}


@pytest.mark.parametrize("shape", STEPS)
def test_a_step_has_every_micro_batch_of_grpos_in_order(make_trainer, shape):
    settings = {"per_device_train_batch_size": 4, "max_steps": 4, **STEPS[shape]}
    if shape == "short last step":
        settings |= {"max_steps": -1, "train_dataset": load_arithmetic("train", 4, num_terms=3)}
    # What GRPO does with the same data, micro-batch after micro-batch
    grpo = make_trainer(GRPOTrainer, GRPOConfig, **settings)
    expected = record_losses(grpo)
    grpo.train()

    stapo = make_trainer(s2t_entropy_quantile=0.0, **settings)
    steps, found = record_steps(stapo), record_losses(stapo)
    stapo.train()

    assert found == expected
    assert [len(step.record.seen) for _, _, step in steps] == [len(inputs) for inputs, _, _ in steps]
    assert [len(inputs) for inputs, _, _ in steps] == list(Counter(number for number, _ in expected).values())
    if shape == "short last step":
        assert [len(inputs) for inputs, _, _ in steps] == [3, 1]
    torch.testing.assert_close(weights(stapo), weights(grpo), rtol=0, atol=0)


def record_losses(trainer) -> list:
    """Collects (step, completion ids) of every micro-batch whose loss is computed in training."""
    seen, compute_loss = [], trainer._compute_loss

    def recorded(model, inputs):
        seen.append((trainer.state.global_step, inputs["completion_ids"].tolist()))
        return compute_loss(model, inputs)

    trainer._compute_loss = recorded
    return seen


def test_every_iteration_is_scored_again_because_the_policy_has_moved(make_trainer):
    trainer = make_trainer(per_device_train_batch_size=8, num_iterations=2, max_steps=2, learning_rate=0.05)
    trainer.train()
    thresholds = [entry["s2t/entropy_threshold"] for entry in trainer.state.log_history[:-1]]
    assert thresholds[0] != thresholds[1]


def largest_difference(steps, only_positive=True) -> float:
    """Between the scores that made the edit and those of the loss's forward."""
    differences = [0.0]
    for inputs, scores, step in steps:
        for batch, scored, seen in zip(inputs, scores, step.record.seen, strict=True):
            rows = batch["advantages"] > 0 if only_positive else slice(None)
            differences += [(a[rows] - b[rows]).abs().sum().item() for a, b in zip(scored, seen[:2], strict=True)]
    return max(differences)


def test_the_scores_of_a_step_are_those_of_its_losss_forward(make_trainer):
    trainer = make_trainer(**SHAPES["accumulation"], max_completion_length=20)
    steps = record_steps(trainer)
    trainer.train()
    assert len(steps) == 2 and largest_difference(steps) < 1e-4


# ---- Forward passes -------------------------------------------------------------------------------------------------


def test_one_micro_batch_costs_no_forward_more_than_grpo(make_trainer):
    counts = {}
    for name, trainer in {"stapo": make_trainer(), "grpo": make_trainer(GRPOTrainer, GRPOConfig)}.items():
        forwards = record_forwards(trainer)
        trainer.train()
        counts[name] = forwards
    assert counts["stapo"] == counts["grpo"] == [(True, 8), (True, 8)]


def test_several_micro_batches_cost_one_more_forward_each_over_positive_responses_only(make_trainer):
    trainer = make_trainer(per_device_train_batch_size=4, gradient_accumulation_steps=4)
    steps, forwards = record_steps(trainer), record_forwards(trainer)
    trainer.train()
    positive = [int((batch["advantages"] > 0).sum()) for inputs, _, _ in steps for batch in inputs]
    assert [rows for grad, rows in forwards if grad] == [4] * 8
    assert [rows for grad, rows in forwards if not grad] == [rows for rows in positive if rows > 0]
    assert 0 < sum(positive) < 2 * 4 * 4


def test_the_older_rule_scores_every_response(make_trainer):
    trainer = make_trainer(
        per_device_train_batch_size=4, gradient_accumulation_steps=2, s2t_entropy_population="all", max_steps=1
    )
    forwards = record_forwards(trainer)
    trainer.train()
    assert forwards == [(False, 4), (False, 4), (True, 4), (True, 4)]


def test_old_log_probs_of_the_same_policy_are_not_computed_twice(make_trainer):
    settings = {
        "per_device_train_batch_size": 4,
        "gradient_accumulation_steps": 2,
        "steps_per_generation": 4,
        "max_steps": 2,
    }
    counts = {}
    for trainer in (make_trainer(**settings), make_trainer(GRPOTrainer, GRPOConfig, **settings)):
        forwards = record_forwards(trainer)
        trainer.train()
        counts[type(trainer)] = forwards
    grpo, stapo = counts[GRPOTrainer], counts[STAPOTrainer]
    # Four no-grad forwards of TRL's for the whole generation; the first optimizer step is scored by them
    assert grpo == [(False, 4)] * 4 + [(True, 4)] * 4
    assert stapo[:6] == grpo[:6]
    assert len(stapo) <= len(grpo) + 2 and all(rows < 4 for grad, rows in stapo[6:] if not grad)


def test_entropies_of_old_log_probs_give_the_same_mask_as_a_new_forward(make_trainer):
    settings = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2, "steps_per_generation": 4}
    results = []
    for reuse in (True, False):
        trainer = make_trainer(**settings)
        if not reuse:
            generate = functools.partial(GRPOTrainer._generate_and_score_completions, trainer)
            trainer._generate_and_score_completions = generate
        steps = record_steps(trainer)
        trainer.train()
        results.append(find_silenced(steps))
    assert results[0] and results[0] == results[1]


# ---- Random numbers -------------------------------------------------------------------------------------------------


def test_dropout_is_scored_with_the_masks_that_the_loss_sees(make_trainer):
    peft_config = LoraConfig(
        target_modules=["q_proj", "v_proj", "o_proj"], r=8, lora_dropout=0.5, init_lora_weights=False
    )
    trainer = make_trainer(**SHAPES["accumulation"], peft_config=peft_config)
    steps, forwards = record_steps(trainer), record_forwards(trainer)
    trainer.train()
    assert len(steps) == 2 and largest_difference(steps, only_positive=False) == 0.0
    # The passes over the positive rows of the first step show that the policy draws
    assert [rows for grad, rows in forwards if grad] == [2] * 8
    assert [rows for grad, rows in forwards if not grad][-8:] == [2] * 8
    # It is the loss's dropout: two scores of one micro-batch differ otherwise
    first, second = (score(trainer, steps[0][0][0])[0] for _ in range(2))
    assert (first != second).any()


def test_dropout_is_found_where_the_first_micro_batch_has_nothing_to_score(make_trainer):
    peft_config = LoraConfig(target_modules=["q_proj", "v_proj", "o_proj"], lora_dropout=0.5, init_lora_weights=False)
    results = []
    for classes in ((STAPOTrainer, STAPOConfig), (GRPOTrainer, GRPOConfig)):
        own = {"s2t_entropy_quantile": 0.0} if classes[0] is STAPOTrainer else {}
        trainer = make_trainer(*classes, **SHAPES["accumulation"], peft_config=copy.deepcopy(peft_config), **own)
        prepare = GRPOTrainer._prepare_inputs

        def without_positives(batch, trainer=trainer, prepare=prepare):
            inputs = prepare(trainer, batch)
            first = trainer._step % 4 == 0
            return inputs | {"advantages": -inputs["advantages"].abs() if first else inputs["advantages"].abs()}

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(GRPOTrainer, "_prepare_inputs", lambda self, batch, own=without_positives: own(batch))
            steps = record_steps(trainer) if classes[0] is STAPOTrainer else []
            trainer.train()
        assert largest_difference(steps, only_positive=False) == 0.0
        results.append((weights(trainer), torch.get_rng_state()))
    torch.testing.assert_close(results[0], results[1], rtol=0, atol=0)


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_lora_with_gradient_checkpointing_trains(make_trainer, use_reentrant):
    trainer = make_trainer(
        **SHAPES["accumulation"],
        peft_config=LoraConfig(target_modules=["q_proj", "v_proj"]),
        gradient_checkpointing=True,
        gradient_checkpointing_kwargs={"use_reentrant": use_reentrant},
    )
    before = weights(trainer)
    trainer.train()
    assert any((weights(trainer)[name] != before[name]).any() for name in before)
    assert trainer.model.is_gradient_checkpointing


# ---- What no run leaves to the next -----------------------------------------------------------------------------------


def test_an_interrupted_step_does_not_leak_into_the_next_run(make_trainer):
    trainer = make_trainer(**SHAPES["accumulation"])
    compute_loss, calls = trainer._compute_loss, []

    def interrupted(model, inputs):
        calls.append(None)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return compute_loss(model, inputs)

    trainer._compute_loss = interrupted
    with pytest.raises(KeyboardInterrupt):
        trainer.train()
    trainer._step, trainer._buffered_inputs = 0, None
    steps = record_steps(trainer)
    trainer.train()
    assert trainer.state.global_step == 2 and [len(step.record.seen) for _, _, step in steps] == [4, 4]


def test_a_second_and_third_run_are_scored_by_their_own_policy(make_trainer):
    # The first step of the second run takes the second half of the last generation of the first
    trainer = make_trainer(
        per_device_train_batch_size=4,
        gradient_accumulation_steps=2,
        steps_per_generation=4,
        max_steps=1,
        learning_rate=0.05,
    )
    for _ in range(3):
        steps = record_steps(trainer)
        trainer.train()
        inputs, _, step = steps[-1]
        assert largest_difference(steps[-1:]) < 1e-4
        logps, entropies = (torch.cat(values) for values in list(zip(*step.record.seen, strict=True))[:2])
        advantages, mask = (torch.cat([batch[name] for batch in inputs]) for name in ("advantages", "completion_mask"))
        expected = reference_keep_mask(logps, entropies, advantages, mask)
        assert torch.equal(torch.cat(step.edit.keep_masks), expected)


# Inside of an evaluation there is no other one
EVENTS = {name for name in dir(TrainerCallback) if name.startswith("on_")} - {
    "on_init_end",
    "on_evaluate",
    "on_predict",
    "on_prediction_step",
    "on_push_begin",
}


def test_evaluation_at_any_moment_of_a_run_is_harmless(make_trainer):
    failures = []
    for event in sorted(EVENTS):

        class Evaluates(TrainerCallback):
            is_evaluating, count = False, 0

            def evaluate(self, args, state, control, **kwargs):
                if not self.is_evaluating:  # an evaluation logs too
                    self.is_evaluating, self.count = True, self.count + 1
                    self.trainer.evaluate()
                    self.is_evaluating = False

        setattr(Evaluates, event, Evaluates.evaluate)
        callback = Evaluates()
        trainer = make_trainer(
            **SHAPES["accumulation"],
            eval_dataset=load_arithmetic("validation", 2, num_terms=3),
            per_device_eval_batch_size=8,
            save_strategy="steps",
            save_steps=1,
            callbacks=[callback],
        )
        callback.trainer = trainer
        steps = record_steps(trainer)
        trainer.train()
        trained = [step for step in steps if len(step[0]) == 4]
        complete = all(len(step.record.seen) == 4 for _, _, step in trained)
        if callback.count == 0 or len(trained) != 2 or not complete or largest_difference(trained) > 1e-4:
            failures.append((event, callback.count, len(trained), complete))
    assert not failures


# ---- Who asks for what forward ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", ["one micro-batch", "accumulation"])
@pytest.mark.parametrize("teacher_first", [True, False])
def test_a_subclass_that_scores_a_teacher_gets_the_teachers_numbers(make_trainer, shape, teacher_first):
    sums = []
    for base, config_class in ((STAPOTrainer, STAPOConfig), (GRPOTrainer, GRPOConfig)):

        class Distilled(base):
            seen, teacher = [], build_model(seed=7)

            def _compute_loss(self, model, inputs):
                ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], dim=1)
                mask = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], dim=1)
                question = (ids, mask, inputs["completion_ids"].size(1))
                if teacher_first:
                    self.seen.append(self._get_per_token_logps_and_entropies(self.teacher, *question)[0].sum().item())
                loss = super()._compute_loss(model, inputs)
                if not teacher_first:
                    self.seen.append(self._get_per_token_logps_and_entropies(self.teacher, *question)[0].sum().item())
                # The policy is the same model, but not asked by the loss any more
                again = self._get_per_token_logps_and_entropies(model, *question)[0]
                return loss + 0 * again.sum()

        own = {"s2t_entropy_quantile": 0.0} if base is STAPOTrainer else {}
        trainer = make_trainer(Distilled, config_class, **SHAPES[shape], **own)
        add_fused_lm_head(trainer.teacher, trainer.temperature, outputs=("log_probs", "entropy"))
        trainer.train()
        sums.append(trainer.seen)
    assert sums[0] == sums[1]


# ---- Rules that change advantages -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Doubled:
    """Doubles the advantage of every token, or keeps all as they are."""

    factor: float = 2.0
    positive_only: bool = False

    def __call__(self, tokens, gather):
        return Edit(advantages=self.factor * tokens.advantages)


SHAPES_OF_RULES = SHAPES | {"two iterations of one micro-batch": {"num_iterations": 2, "max_steps": 4}}


@pytest.mark.parametrize("shape", SHAPES_OF_RULES)
def test_new_advantages_act_once_in_every_step(make_trainer, shape):
    def double(completions, **kwargs):
        return [2 * reward for reward in content_reward(completions)]

    settings = SHAPES_OF_RULES[shape] | {"scale_rewards": "none", "optim": "sgd", "max_grad_norm": 0.0}
    doubled = train(make_trainer(token_rule=Doubled(), **settings))
    grpo = train(make_trainer(GRPOTrainer, GRPOConfig, reward_funcs=double, **settings))
    plain = train(make_trainer(GRPOTrainer, GRPOConfig, **settings))
    torch.testing.assert_close(weights(doubled), weights(grpo))
    assert any((weights(plain)[name] != value).any() for name, value in weights(grpo).items())


@pytest.mark.parametrize("shape", SHAPES)
def test_a_rule_that_changes_nothing_is_grpo_bit_for_bit(make_trainer, shape):
    class Nothing:
        positive_only = True

        def __call__(self, tokens, gather):
            return Edit()

    for rule in (Nothing(), Doubled(factor=1.0)):
        found = train(make_trainer(token_rule=rule, **SHAPES[shape]))
        grpo = train(make_trainer(GRPOTrainer, GRPOConfig, **SHAPES[shape]))
        torch.testing.assert_close(weights(found), weights(grpo), rtol=0, atol=0)


def test_a_rule_whose_answer_does_not_fit_is_refused_by_name(make_trainer):
    failures = []
    for answer in (
        {"keep": lambda tokens: torch.ones(3, dtype=torch.bool)},
        {"keep": lambda tokens: torch.ones_like(tokens.logps)},
        {"advantages": lambda tokens: tokens.logps < 0},
    ):
        ((name, make),) = answer.items()

        class Wrong:
            positive_only = False

            def __call__(self, tokens, gather, name=name, make=make):
                return Edit(**{name: make(tokens)})

        with pytest.raises(ValueError) as caught:
            make_trainer(token_rule=Wrong()).train()
        if f"`{name}` for each of the" not in str(caught.value):
            failures.append(str(caught.value))
    assert not failures


def test_a_rule_with_memory_is_resumed_with_it(make_trainer, tmp_path):
    class Counting:
        positive_only = True

        def __init__(self):
            self.calls = 0

        def __call__(self, tokens, gather):
            self.calls += 1
            return Edit()

        def state_dict(self):
            return {"calls": self.calls}

        def load_state_dict(self, state):
            self.calls = state["calls"]

    make_trainer(token_rule=Counting(), max_steps=2, save_strategy="steps", save_steps=2).train()
    resumed = make_trainer(token_rule=Counting(), max_steps=3)
    resumed.train(resume_from_checkpoint=str(tmp_path / "run" / "checkpoint-2"))
    assert resumed.token_rule.calls == 3
