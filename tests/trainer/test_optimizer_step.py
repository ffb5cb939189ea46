"""The mini-batch is the optimizer step: one mask for all its micro-batches, at the price of few forward passes."""

import functools
import itertools

import pytest
import torch
from peft import LoraConfig
from toys import SHAPES, record_silenced, weights
from trl import GRPOConfig, GRPOTrainer

from stapo_trl import STAPOTrainer
from stapo_trl.arithmetic.problems import load_arithmetic


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
        silenced = record_silenced(trainer)
        trainer.train()
        results.append((sorted(silenced), weights(trainer)))
    assert len(results[0][0]) > 2
    for silenced, weight in results[1:]:
        assert silenced == results[0][0]
        torch.testing.assert_close(weight, results[0][1])


def test_a_micro_batch_of_one_response_silences_what_the_whole_batch_does(make_trainer):
    # A quantile over each micro-batch alone would never silence a single candidate
    trainer = make_trainer(per_device_train_batch_size=1, gradient_accumulation_steps=8)
    silenced = record_silenced(trainer)
    trainer.train()
    assert silenced


# ---- Windows of every shape -----------------------------------------------------------------------------------------


WINDOWS = {
    "spans two generations": {"gradient_accumulation_steps": 4, "steps_per_generation": 2},
    "not aligned with generations": {"gradient_accumulation_steps": 4, "steps_per_generation": 6},
    "two iterations": {"gradient_accumulation_steps": 2, "steps_per_generation": 4, "num_iterations": 2},
    "the same micro-batch twice": {"gradient_accumulation_steps": 4, "steps_per_generation": 2, "num_iterations": 2},
    "short last window": {"gradient_accumulation_steps": 3, "steps_per_generation": 2, "num_train_epochs": 1},
}


@pytest.mark.parametrize("shape", WINDOWS)
def test_a_window_is_every_micro_batch_of_its_step_in_order(make_trainer, shape):
    settings = {"per_device_train_batch_size": 4, "max_steps": 4, **WINDOWS[shape]}
    if shape == "short last window":
        settings |= {"max_steps": -1, "train_dataset": load_arithmetic("train", 4, num_terms=3)}
    # What GRPO does with the same data, micro-batch after micro-batch
    grpo = make_trainer(GRPOTrainer, GRPOConfig, **settings)
    expected = record_losses(grpo)
    grpo.train()

    stapo = make_trainer(s2t_entropy_quantile=0.0, **settings)
    windows, silence = [], stapo._silence

    def recorded(inputs, scores):
        windows.append(len(inputs))
        return silence(inputs, scores)

    ends, log_forward = [], stapo._log_forward

    def recorded_end(inputs, logps, entropies, sums_sq, is_last):
        ends.append(is_last)
        log_forward(inputs, logps, entropies, sums_sq, is_last)

    stapo._silence, stapo._log_forward = recorded, recorded_end
    found = record_losses(stapo)
    stapo.train()

    assert found == expected
    assert sum(windows) == len(expected) and len(windows) == stapo.state.global_step
    assert [index + 1 for index, end in enumerate(ends) if end] == list(itertools.accumulate(windows))
    if shape == "short last window":
        assert windows == [3, 1]
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


def test_the_mask_of_a_window_is_that_of_its_losss_forward(make_trainer):
    """The scores that made the mask are the numbers the loss sees, for the responses that can hold candidates."""
    trainer = make_trainer(**SHAPES["accumulation"], max_completion_length=20)
    scored, silence, log_forward = [], trainer._silence, trainer._log_forward
    differences = []

    def record_scores(inputs, scores):
        scored.extend((batch["advantages"] > 0, *pair) for batch, pair in zip(inputs, scores, strict=True))
        return silence(inputs, scores)

    def compare(inputs, logps, entropies, sums_sq, is_last):
        positive, scored_logps, scored_entropies = scored.pop(0)
        differences.append((scored_logps - logps)[positive].abs().sum().item())
        differences.append((scored_entropies - entropies)[positive].abs().sum().item())
        log_forward(inputs, logps, entropies, sums_sq, is_last)

    trainer._silence, trainer._log_forward = record_scores, compare
    trainer.train()
    assert len(differences) == 16 and max(differences) < 1e-4


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
    positive, prepare = [], trainer._prepare_window

    def recorded(micro_batches):
        window = prepare(micro_batches)
        positive.extend(int((batch["advantages"] > 0).sum()) for batch in window)
        return window

    trainer._prepare_window = recorded
    forwards = record_forwards(trainer)
    trainer.train()
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
    # Four no-grad forwards of TRL's for the whole generation; the first step's window is scored by them
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
        results.append(record_silenced(trainer))
        trainer.train()
    assert results[0] and results[0] == results[1]


# ---- Dropout --------------------------------------------------------------------------------------------------------


def test_dropout_is_scored_with_the_masks_that_the_loss_sees(make_trainer):
    peft_config = LoraConfig(
        target_modules=["q_proj", "v_proj", "o_proj"], r=8, lora_dropout=0.5, init_lora_weights=False
    )
    trainer = make_trainer(**SHAPES["accumulation"], peft_config=peft_config)
    scores, silence, log_forward, differences = [], trainer._silence, trainer._log_forward, []

    def record_scores(inputs, window_scores):
        scores.extend(window_scores)
        return silence(inputs, window_scores)

    def compare(inputs, logps, entropies, sums_sq, is_last):
        expected = scores.pop(0)
        differences.append(max((expected[0] - logps).abs().max().item(), (expected[1] - entropies).abs().max().item()))
        log_forward(inputs, logps, entropies, sums_sq, is_last)

    trainer._silence, trainer._log_forward = record_scores, compare
    forwards = record_forwards(trainer)
    trainer.train()
    assert len(differences) == 8 and max(differences) == 0.0
    assert [rows for _, rows in forwards] == [2] * 16
    # It is dropout that was replayed: two scores of one micro-batch differ otherwise
    batch = trainer._prepare_window([next(iter(trainer.get_train_dataloader()))] * 4)[0]
    first, second = (trainer._score_tokens(trainer.model, batch)[0] for _ in range(2))
    assert (first != second).any()


def test_dropout_with_nothing_silenced_is_grpo_bit_for_bit(make_trainer):
    settings = SHAPES["accumulation"] | {"peft_config": LoraConfig(target_modules=["q_proj"], lora_dropout=0.5)}
    stapo = make_trainer(s2t_entropy_quantile=0.0, **settings)
    stapo.train()
    grpo = make_trainer(GRPOTrainer, GRPOConfig, **settings)
    grpo.train()
    torch.testing.assert_close(weights(stapo), weights(grpo), rtol=0, atol=0)


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


def test_interrupted_window_does_not_leak_into_the_next_run(make_trainer):
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
    assert len(trainer._window) == 2
    trainer._step, trainer._buffered_inputs = 0, None
    trainer.train()
    assert trainer.state.global_step == 2 and len(trainer._window) == 0
