"""The trainer: off is GRPO, the objective is the paper's, and what it logs, accepts and refuses."""

import math

import pytest
import torch
from datasets import Dataset
from toys import (
    SHAPES,
    TOY_PROB_THRESHOLD,
    content_reward,
    find_silenced,
    make_inputs,
    record_steps,
    run_step,
    score,
    weights,
)
from trl import GRPOConfig, GRPOTrainer

from stapo_trl import STAPOConfig, STAPOTrainer
from stapo_trl.arithmetic.problems import load_arithmetic
from stapo_trl.rules.s2t import S2T


LOSS_TYPES = ["grpo", "bnpo", "dr_grpo", "dapo", "cispo", "sapo", "luspo", "vespo"]


def train(trainer):
    trainer.train()
    return trainer


def test_silencing_changes_the_update(make_trainer):
    on, off = train(make_trainer()), train(make_trainer(s2t_prob_threshold=0.0))
    assert any((weights(on)[name] != weights(off)[name]).any() for name in weights(on))


# ---- The objective, against a slow float64 reference --------------------------------------------------------------


def plain_forward(self, model, input_ids, attention_mask, logits_to_keep, *args, compute_entropy=False, **kwargs):
    """TRL's forward in the model's own precision, without its fused float32 head."""
    logits = model(input_ids=input_ids, attention_mask=attention_mask).logits[:, -logits_to_keep - 1 : -1]
    logps = (logits / self.temperature).log_softmax(-1)
    sampled = logps.gather(-1, input_ids[:, -logits_to_keep:, None]).squeeze(-1)
    return sampled, -(logps.exp() * logps).sum(-1) if compute_entropy else None, None


def reference_loss(trainer, micro_batches, tau, q, divisor):
    """
    The paper's objective J, one token at a time: clipped ratio times advantage over the kept tokens, for every loss type
    that masks tokens. `divisor(kept, valid)` is the token normaliser of dapo.
    """
    config, tokens = trainer.args, []
    for index, batch in enumerate(micro_batches):
        ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], 1)
        mask = torch.cat([batch["prompt_mask"], batch["completion_mask"]], 1)
        logits = trainer.model(input_ids=ids, attention_mask=mask).logits / config.temperature
        num_prompt = batch["prompt_ids"].size(1)
        for i in range(ids.size(0)):
            for t in range(batch["completion_ids"].size(1)):
                if batch["completion_mask"][i, t] * batch.get("tool_mask", batch["completion_mask"])[i, t] == 0:
                    continue
                logp = logits[i, num_prompt + t - 1].log_softmax(-1)
                entropy = -sum(value.exp() * value for value in logp)
                token = logp[batch["completion_ids"][i, t]]
                ratio = (token - batch["old_per_token_logps"][i, t]).exp()
                advantage = batch["advantages"][i]
                clipped = ratio.clamp(1 - config.epsilon, 1 + config.epsilon_high)
                gain = torch.minimum(ratio * advantage, clipped * advantage)
                tokens.append((index, i, gain, token.exp().item(), entropy.item(), advantage.item()))
    candidates = sorted(h for *_, p, h, a in tokens if a > 0 and p < tau)
    position = q * (len(candidates) - 1)
    low = candidates[math.floor(position)]
    high = candidates[math.ceil(position)]
    threshold = low + (position - math.floor(position)) * (high - low)
    kept = [(m, i, gain) for m, i, gain, p, h, a in tokens if not (a > 0 and p < tau and h < threshold)]
    assert 0 < len(tokens) - len(kept) < len(candidates)

    num_micro, total = len(micro_batches), 0.0
    for m, batch in enumerate(micro_batches):
        own = [(i, gain) for n, i, gain in kept if n == m]
        rows = batch["completion_ids"].size(0)
        if config.loss_type == "dapo":
            total += sum(gain for _, gain in own) / divisor(len(kept), len(tokens))
        elif config.loss_type == "bnpo":
            total += sum(gain for _, gain in own) / max(len(own), 1) / num_micro
        elif config.loss_type == "dr_grpo":
            total += sum(gain for _, gain in own) / (rows * config.max_completion_length) / num_micro
        elif config.loss_type == "luspo":
            total += sum(gain for _, gain in own) / rows / num_micro
        elif config.loss_type == "grpo":
            for i in range(rows):
                row = [gain for j, gain in own if j == i]
                total += sum(row) / max(len(row), 1) / rows / num_micro
    return -total


@pytest.fixture
def float64_default():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("loss_type", ["dapo", "bnpo", "grpo", "dr_grpo", "luspo"])
def test_gradient_equals_the_papers_objective(make_trainer, monkeypatch, float64_default, loss_type):
    for num_micro, steps_per_generation in ((1, 1), (1, 2), (3, 1), (3, 2)):
        check_gradient(make_trainer, monkeypatch, loss_type, num_micro, steps_per_generation)


def check_gradient(make_trainer, monkeypatch, loss_type, num_micro, steps_per_generation):
    trainer = make_trainer(
        loss_type=loss_type,
        temperature=0.7,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=num_micro,
        steps_per_generation=num_micro * steps_per_generation,
    )
    trainer.model.double()
    micro_batches = [make_inputs(4, 6, seed) for seed in range(num_micro)]
    micro_batches[0]["tool_mask"] = (torch.rand(4, 6, generator=torch.Generator().manual_seed(9)) < 0.8).long()
    for seed, batch in enumerate(micro_batches):
        noise = torch.randn(4, 6, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        batch["old_per_token_logps"] = -3.3 + 0.4 * noise
    # Other steps of the generation hold as many tokens again, and seven more
    valid = sum((b["completion_mask"] * b.get("tool_mask", 1)).sum() for b in micro_batches)
    generated = valid * steps_per_generation + 7 * (steps_per_generation - 1)
    for batch in micro_batches:
        batch["num_items_in_batch"] = generated

    with monkeypatch.context() as patch:
        patch.setattr(GRPOTrainer, "_get_per_token_logps_and_entropies", plain_forward)
        losses = run_step(trainer, micro_batches)
    gradients = {name: parameter.grad.clone() for name, parameter in trainer.model.named_parameters()}
    trainer.model.zero_grad()

    # With one step per generation this is the number of kept tokens; otherwise TRL's average over the steps, scaled by
    # the kept share of this one
    reference = reference_loss(
        trainer,
        micro_batches,
        TOY_PROB_THRESHOLD,
        0.75,
        divisor=lambda kept, valid: int(generated) / steps_per_generation * kept / valid,
    )
    reference.backward()
    torch.testing.assert_close(sum(losses), reference)
    for name, parameter in trainer.model.named_parameters():
        torch.testing.assert_close(gradients[name], parameter.grad, rtol=1e-9, atol=1e-12)


# ---- Steps that hold little -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", ["no candidate", "all silenced", "all padding"])
def test_degenerate_steps_give_finite_connected_losses(make_trainer, case):
    failures = []
    for loss_type in LOSS_TYPES:
        for num_micro in (1, 2):
            trainer = make_trainer(
                loss_type=loss_type,
                per_device_train_batch_size=4,
                gradient_accumulation_steps=num_micro,
                s2t_prob_threshold=0.999,
                s2t_entropy_quantile=1.0,
            )
            micro_batches = [make_inputs(4, 6, seed) for seed in range(num_micro)]
            for batch in micro_batches:
                batch["advantages"] = torch.full((4,), -1.0 if case == "no candidate" else 1.0)
                if case == "all padding":
                    batch["completion_mask"] = torch.zeros_like(batch["completion_mask"])
                    batch["num_items_in_batch"] = torch.tensor(0)
            losses = run_step(trainer, micro_batches)
            gradients = [p.grad for p in trainer.model.parameters()]
            shares = trainer._metrics["train"].get("s2t/silenced_share")
            fine = all(loss.isfinite() for loss in losses)
            fine = fine and all(gradient is not None and gradient.isfinite().all() for gradient in gradients)
            fine = fine and shares == {"no candidate": [0.0], "all silenced": [1.0], "all padding": None}[case]
            if case != "no candidate":
                fine = fine and all(loss == 0 for loss in losses) and not any(g.any() for g in gradients)
            if not fine:
                failures.append((loss_type, num_micro, losses, shares))
    assert not failures


def test_abstained_rewards_hold_no_candidates(make_trainer):
    trainer = train(make_trainer(reward_funcs=lambda completions, **kwargs: [None] * len(completions)))
    assert [entry["s2t/candidate_share"] for entry in trainer.state.log_history[:-1]] == [0.0, 0.0]


def test_truncated_completions_are_never_silenced(make_trainer):
    # An untrained policy ends one completion in several; the others are cut off and leave the loss altogether
    trainer = make_trainer(mask_truncated_completions=True, s2t_prob_threshold=0.999, s2t_entropy_quantile=1.0)
    steps = record_steps(trainer)
    trainer.train()
    silenced = find_silenced(steps)
    assert silenced
    assert all(trainer.processing_class.eos_token_id in completion for _, completion, _ in silenced)


SHAPES_OF_SEVEN = {"one micro-batch": {}, "accumulation": {"gradient_accumulation_steps": 2}}


@pytest.mark.parametrize("shape", SHAPES_OF_SEVEN)
def test_equal_rewards_leave_no_candidates_under_every_scaling(make_trainer, shape):
    for scale_rewards in ("group", "batch", "none"):
        for aggregation in ("sum_then_normalize", "normalize_then_sum"):
            trainer = make_trainer(
                # Seven equal float32 rewards of 0.7 have a mean beside 0.7, and an "advantage" of up to 2e-3
                reward_funcs=lambda completions, **kwargs: [0.7] * len(completions),
                per_device_train_batch_size=14,
                num_generations=7,
                scale_rewards=scale_rewards,
                multi_objective_aggregation=aggregation,
                **SHAPES_OF_SEVEN[shape],
            )
            train(trainer)
            assert [entry["s2t/candidate_share"] for entry in trainer.state.log_history[:-1]] == [0.0, 0.0]


def test_nonfinite_entropies_are_counted_and_not_silenced(make_trainer, monkeypatch):
    trainer = make_trainer(per_device_train_batch_size=4, s2t_prob_threshold=0.999, s2t_entropy_quantile=1.0)
    forward = GRPOTrainer._get_per_token_logps_and_entropies

    def broken_forward(self, *args, **kwargs):
        logps, entropies, aux_loss = forward(self, *args, **kwargs)
        broken = torch.zeros_like(entropies)
        broken[0, 0] = math.nan
        return logps, entropies + broken, aux_loss

    monkeypatch.setattr(GRPOTrainer, "_get_per_token_logps_and_entropies", broken_forward)
    batch = make_inputs(4, 6)
    batch["advantages"] = torch.ones(4)
    run_step(trainer, [batch])
    metrics, valid = trainer._metrics["train"], int(batch["completion_mask"].sum())
    assert metrics["s2t/nonfinite"] == [1]
    assert metrics["s2t/silenced_share"] == [(valid - 1) / valid]
    assert math.isfinite(metrics["s2t/entropy"][0])


# ---- Metrics --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("num_micro", [1, 2])
def test_metrics_describe_the_optimizer_step(make_trainer, monkeypatch, num_micro):
    trainer = make_trainer(per_device_train_batch_size=4, gradient_accumulation_steps=num_micro, token_stats_steps=0)
    micro_batches = [make_inputs(4, 6, seed) for seed in range(num_micro)]
    for batch in micro_batches:
        batch["num_items_in_batch"] = sum(b["completion_mask"].sum() for b in micro_batches)
    scores = [score(trainer, batch) for batch in micro_batches]
    run_step(trainer, micro_batches)

    probs, entropies, masks, advantages = [], [], [], []
    for (logps, entropy), batch in zip(scores, micro_batches, strict=True):
        probs.append(logps.exp())
        entropies.append(entropy)
        masks.append(batch["completion_mask"].bool())
        advantages.append(batch["advantages"][:, None].expand_as(logps))
    probs, entropies, masks, advantages = (torch.cat(x) for x in (probs, entropies, masks, advantages))
    candidates = masks & (advantages > 0) & (probs < TOY_PROB_THRESHOLD)
    threshold = torch.quantile(entropies[candidates], 0.75)
    silenced = candidates & (entropies < threshold)
    assert 0 < silenced.sum() < candidates.sum()
    expected = {
        "s2t/silenced_share": silenced.sum() / masks.sum(),
        "s2t/candidate_share": candidates.sum() / masks.sum(),
        "s2t/entropy_threshold": threshold,
        "s2t/silenced_prob": probs[silenced].mean(),
        "s2t/silenced_entropy": entropies[silenced].mean(),
        "s2t/entropy": entropies[masks].mean(),
        "s2t/nonfinite": 0.0,
    }
    found = {name: values for name, values in trainer._metrics["train"].items() if name.startswith("s2t/")}
    assert {name: len(values) for name, values in found.items()} == dict.fromkeys(expected, 1)
    for name, value in expected.items():
        torch.testing.assert_close(found[name][0], float(value), rtol=1e-5, atol=1e-7)


def test_own_entropy_covers_the_silenced_tokens_that_trls_leaves_out(make_trainer, monkeypatch):
    trainer = make_trainer(per_device_train_batch_size=4, s2t_entropy_quantile=1.0)
    run_step(trainer, [make_inputs(4, 6)])
    assert trainer._metrics["train"]["s2t/entropy"] != trainer._metrics["train"]["entropy"]


def test_silenced_tokens_are_counted_by_id(make_trainer):
    trainer = make_trainer(**SHAPES["accumulation"])
    steps = record_steps(trainer)
    trainer.train()
    silenced = find_silenced(steps)
    ids = [completion[position] for _, completion, position in silenced]
    assert ids and trainer.silenced_token_ids == {token: ids.count(token) for token in set(ids)}


# ---- What it accepts ------------------------------------------------------------------------------------------------


def test_a_plain_grpo_config_trains_with_the_papers_thresholds(make_trainer):
    trainer = train(make_trainer(config_class=GRPOConfig))
    assert trainer.token_rule == S2T(0.002, 0.75, "candidates", "low_entropy")
    assert "s2t/silenced_share" in trainer.state.log_history[0]


OTHER_SETTINGS = [
    {"top_entropy_quantile": 0.5},
    {"entropy_coef": 0.01},
    {"use_adaptive_entropy": True, "entropy_coef": 0.01},
    {"importance_sampling_level": "sequence", "loss_type": "grpo"},
    {"off_policy_mask_threshold": 0.5},
    {"delta": 4.0},
    {"scale_rewards": "batch"},
    {"mask_truncated_completions": True},
    {"s2t_entropy_population": "all"},
    {"s2t_selection": "high_entropy"},
    {"s2t_selection": "random"},
    {"reward_funcs": [content_reward, content_reward], "reward_weights": [1.0, 0.5]},
    {"gradient_checkpointing": True},
    {"gradient_checkpointing": True, "gradient_checkpointing_kwargs": {"use_reentrant": True}},
    {"bf16": True},
    {"logging_steps": 2},
]


@pytest.mark.parametrize("shape", ["one micro-batch", "accumulation"])
def test_it_silences_and_learns_under_grpos_other_settings(make_trainer, shape):
    failures = []
    for settings in OTHER_SETTINGS:
        trainer = make_trainer(**{**SHAPES[shape], **settings})
        before = weights(trainer)
        trainer.train()
        finite = all(value.isfinite().all() for value in weights(trainer).values())
        moved = any((weights(trainer)[name] != before[name]).any() for name in before)
        silenced = any(entry.get("s2t/silenced_share", 0) > 0 for entry in trainer.state.log_history)
        if not (finite and moved and silenced):
            failures.append((settings, finite, moved, silenced))
    assert not failures


def test_trains_with_a_reference_model(make_trainer, tmp_path):
    from stapo_trl.arithmetic.warm_start import build_model, build_tokenizer

    build_model().save_pretrained(tmp_path / "model")
    build_tokenizer().save_pretrained(tmp_path / "model")
    for shape in ("one micro-batch", "accumulation"):
        trainer = train(make_trainer(model=str(tmp_path / "model"), beta=0.1, **SHAPES[shape]))
        assert trainer.state.log_history[0]["kl"] == 0.0
        assert trainer.state.log_history[1]["kl"] > 0.0


@pytest.mark.parametrize("shape", ["one micro-batch", "accumulation"])
def test_evaluates_before_between_and_after_training(make_trainer, shape):
    trainer = make_trainer(
        **SHAPES[shape],
        eval_dataset=load_arithmetic("validation", 3, num_terms=3),
        per_device_eval_batch_size=3,
        num_generations_eval=1,
        eval_strategy="steps",
        eval_steps=1,
    )
    before = weights(trainer)
    assert math.isfinite(trainer.evaluate()["eval_loss"])
    torch.testing.assert_close(weights(trainer), before, rtol=0, atol=0)
    trainer.train()
    metrics = trainer.evaluate()
    # One generation per prompt has no group to compare with: its advantage is 0
    assert metrics["eval_s2t/candidate_share"] == 0.0 and metrics["eval_s2t/entropy"] > 0
    assert sum("eval_s2t/entropy" in entry for entry in trainer.state.log_history) == 3  # train() clears the history


def test_evaluation_between_steps_does_not_change_the_masks(make_trainer):
    settings = SHAPES["accumulation"] | {"max_steps": 3}
    plain = train(make_trainer(**settings))

    def evaluated():
        trainer = make_trainer(
            **settings, eval_dataset=load_arithmetic("validation", 2, num_terms=3), per_device_eval_batch_size=8
        )
        prepare = trainer._prepare_step

        # Generation in evaluation draws random numbers, so the generator is put back
        def prepare_after_evaluation(micro_batches):
            state = torch.get_rng_state()
            trainer.evaluate()
            trainer.model.train()
            torch.set_rng_state(state)
            yield from prepare(micro_batches)

        trainer._prepare_step = prepare_after_evaluation
        return train(trainer)

    torch.testing.assert_close(weights(evaluated()), weights(plain), rtol=0, atol=0)


def test_streamed_data_train_as_with_grpo(make_trainer, dataset):
    settings = SHAPES["accumulation"] | {"train_dataset": dataset.to_iterable_dataset()}
    stapo = train(make_trainer(s2t_entropy_quantile=0.0, **settings))
    grpo = train(make_trainer(GRPOTrainer, GRPOConfig, **settings))
    torch.testing.assert_close(weights(stapo), weights(grpo), rtol=0, atol=0)
    assert all(entry["s2t/candidate_share"] > 0 for entry in stapo.state.log_history[:-1])


def test_chat_prompts_train(make_trainer, tokenizer):
    tokenizer.chat_template = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
    rows = [{"prompt": [{"role": "user", "content": p}]} for p in load_arithmetic("train", 16, num_terms=3)["prompt"]]

    def chat_reward(completions, **kwargs):
        return content_reward([completion[0]["content"] for completion in completions])

    trainer = make_trainer(train_dataset=Dataset.from_list(rows), processing_class=tokenizer, reward_funcs=chat_reward)
    assert any(entry.get("s2t/silenced_share", 0) > 0 for entry in train(trainer).state.log_history)


def test_model_card_cites_stapo(make_trainer, tmp_path):
    trainer = make_trainer()
    trainer.create_model_card(model_name="toy")
    card = (tmp_path / "run" / "README.md").read_text()
    assert "2602.15620" in card and "STAPO" in card and "- stapo" in card


# ---- What it refuses ------------------------------------------------------------------------------------------------


def test_a_missing_prompt_column_is_named(make_trainer, dataset):
    with pytest.raises(ValueError, match="no column 'prompt', only .*'question'"):
        make_trainer(train_dataset=dataset.rename_column("prompt", "question"))


def test_a_column_that_a_reward_needs_is_named(make_trainer, dataset):
    def exact_reward(completions, solution, **kwargs):
        return [0.0] * len(completions)

    with pytest.raises(ValueError, match="'exact_reward' needs the column 'solution'"):
        make_trainer(reward_funcs=exact_reward, train_dataset=dataset.remove_columns("solution"))


@pytest.mark.parametrize("size", [0, 1])
def test_a_data_set_smaller_than_a_generation_batch_is_refused(make_trainer, dataset, size):
    with pytest.raises(ValueError, match=f"has {size} prompts, but one generation batch takes 2"):
        make_trainer(train_dataset=dataset.select(range(size)))


def test_a_reward_function_with_the_wrong_number_of_values_is_named(make_trainer):
    def short_reward(completions, **kwargs):
        return [1.0]

    with pytest.raises(ValueError, match="short_reward"):
        make_trainer(reward_funcs=short_reward).train()


def test_infinite_rewards_are_refused_and_the_function_named(make_trainer):
    def infinite_reward(completions, **kwargs):
        return [math.inf] + [0.0] * (len(completions) - 1)

    with pytest.raises(ValueError, match="'infinite_reward' returned an infinite reward"):
        make_trainer(reward_funcs=[content_reward, infinite_reward]).train()


def test_a_forward_without_entropies_is_refused(make_trainer, monkeypatch):
    trainer = make_trainer()
    forward = GRPOTrainer._get_per_token_logps_and_entropies

    def unsloth_forward(self, *args, **kwargs):
        return forward(self, *args, **kwargs)[0], None, None

    monkeypatch.setattr(GRPOTrainer, "_get_per_token_logps_and_entropies", unsloth_forward)
    with pytest.raises(RuntimeError, match="no entropies"):
        trainer.train()


def test_is_a_grpo_trainer_with_its_own_name():
    assert issubclass(STAPOTrainer, GRPOTrainer) and issubclass(STAPOConfig, GRPOConfig)
    assert (STAPOTrainer._name, STAPOTrainer._tag_names) == ("STAPO", ["trl", "stapo"])
