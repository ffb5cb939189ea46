"""What the trainer logs of its tokens is what its forward saw, and logging changes no weight."""

import pytest
import torch
from peft import LoraConfig
from toys import SHAPES, TOY_PROB_THRESHOLD, find_silenced, record_steps, weights

from stapo_trl.arithmetic.warm_start import build_model, build_tokenizer
from stapo_trl.observe.dynamics import QUADRANTS
from stapo_trl.observe.fused_head import capture_sum_sq, find_alternatives
from stapo_trl.observe.token_log import read_token_log


def train(trainer):
    trainer.train()
    return read_token_log(trainer.args.output_dir).to_pandas()


@pytest.mark.parametrize(
    ("shape", "extra"),
    [(shape, "plain") for shape in SHAPES]
    + [("accumulation", extra) for extra in ("lora", "bf16", "checkpointing")]
    + [("one micro-batch", "lora")],
)
def test_logging_and_statistics_change_no_weight(make_trainer, tmp_path, shape, extra):
    settings = {
        "plain": {},
        "lora": {"peft_config": LoraConfig(target_modules=["q_proj"], lora_dropout=0.5)},
        "bf16": {"bf16": True},
        "checkpointing": {"gradient_checkpointing": True},
    }[extra]
    found = []
    for on in (True, False):
        trainer = make_trainer(
            **SHAPES[shape],
            **settings,
            log_tokens=on,
            token_stats_steps=int(on),
            output_dir=str(tmp_path / f"run-{on}"),
        )
        trainer.train()
        found.append(weights(trainer))
        assert (tmp_path / f"run-{on}" / "token_log").exists() == on
    torch.testing.assert_close(found[0], found[1], rtol=0, atol=0)


@pytest.mark.parametrize("shape", SHAPES)
def test_every_silenced_token_is_logged_once(make_trainer, shape):
    trainer = make_trainer(**SHAPES[shape])
    steps = record_steps(trainer)
    log = train(trainer)
    silenced = find_silenced(steps)
    tokenizer = build_tokenizer()
    expected = sorted(tokenizer.decode([completion[position]]) for _, completion, position in silenced)
    assert len(expected) > 4
    assert sorted(log[log.silenced].token) == expected
    assert set(log[log.silenced].candidate) == {True}
    assert not log.duplicated(["step", "completion_id", "position"]).any()
    assert set(log.step) == set(range(1, trainer.state.global_step + 1))


def test_a_row_holds_what_the_policy_gave_its_token(make_trainer):
    """Every number of every row against a plain forward of the same model on the text that the row names."""
    trainer = make_trainer(max_steps=1, learning_rate=0.0, token_stats_steps=1, temperature=0.7)
    steps = record_steps(trainer)
    log = train(trainer)
    (batch,) = steps[0][0]
    tokenizer, model = trainer.processing_class, trainer.model.eval()
    assert len(log) > 20 and log.silenced.any() and (~log.candidate).any() and (log.candidate & ~log.silenced).any()
    prompts = {row["problem_id"]: row["prompt"] for row in trainer.train_dataset}
    for row in log.itertuples():
        index = int(row.completion_id.split("-")[-1])
        prompt = batch["prompt_ids"][index][batch["prompt_mask"][index].bool()]
        assert tokenizer.decode(prompt) == prompts[row.problem_id]
        ids = torch.cat([prompt, batch["completion_ids"][index]])
        at = len(prompt) + row.position
        assert ids[at] == row.token_id and row.before == tokenizer.decode(ids[:at])
        with torch.no_grad():
            probs = (model(ids[None, :at]).logits[0, -1] / 0.7).softmax(-1).double()
        assert tokenizer.decode([row.token_id]) == row.token
        assert row.prob == pytest.approx(probs[row.token_id].item(), rel=1e-3)
        assert row.entropy == pytest.approx(-(probs * probs.log()).sum().item(), rel=1e-3)
        one_hot = torch.nn.functional.one_hot(torch.tensor(row.token_id), len(probs))
        assert row.gradient_norm == pytest.approx(abs(row.advantage) * (one_hot - probs).norm().item(), rel=1e-3)
        assert row.ratio == pytest.approx(1.0, abs=1e-5)
        assert row.silenced == (row.candidate and row.entropy < row.entropy_threshold)
        assert row.candidate == (row.advantage > 0 and row.prob < TOY_PROB_THRESHOLD)
        if row.top_tokens is not None:
            best = probs.topk(5)
            assert list(row.top_tokens) == [tokenizer.decode([token]) for token in best.indices]
            assert list(row.top_probs) == pytest.approx(best.values.tolist(), rel=1e-3)
    assert log[log.silenced].top_tokens.notna().any()


def test_completions_are_logged_whole(make_trainer):
    trainer = make_trainer(token_stats_steps=1)
    train(trainer)
    completions = read_token_log(trainer.args.output_dir, "completions").to_pylist()
    tokens = read_token_log(trainer.args.output_dir).to_pylist()
    assert completions and any(any(row["silenced"]) for row in completions)
    for row in completions:
        assert len(row["tokens"]) == len(row["probs"]) == len(row["entropies"]) == len(row["silenced"])
        for other in tokens:
            if other["completion_id"] == row["completion_id"]:
                assert row["tokens"][other["position"]] == other["token"]
                assert row["probs"][other["position"]] == other["prob"]
                assert row["silenced"][other["position"]] == other["silenced"]
                assert row["reward"] == other["reward"]


def test_quadrants_are_logged_in_the_steps_asked_for(make_trainer):
    trainer = make_trainer(**SHAPES["accumulation"], max_steps=4, token_stats_steps=3)
    trainer.train()
    key = "s2t/positive/low_prob_low_entropy/gradient_norm"
    assert [entry["step"] for entry in trainer.state.log_history if key in entry] == [1, 4]
    entry = trainer.state.log_history[0]
    shares = [
        entry[f"s2t/{sign}/{quadrant}/gradient_share"] for sign in ("positive", "negative") for quadrant in QUADRANTS
    ]
    assert sum(shares) == pytest.approx(1.0)
    low = [entry[f"s2t/positive/low_prob_{entropy}_entropy/share"] for entropy in ("low", "high")]
    assert sum(low) == pytest.approx(entry["s2t/candidate_share"])
    assert low[0] == pytest.approx(entry["s2t/silenced_share"])


def test_statistics_do_not_depend_on_how_a_step_is_cut(make_trainer):
    entries = []
    for settings in ({}, SHAPES["accumulation"]):
        trainer = make_trainer(**settings, max_steps=1, token_stats_steps=1)
        trainer.train()
        entries.append({k: v for k, v in trainer.state.log_history[0].items() if k.startswith("s2t/")})
    assert entries[0] == pytest.approx(entries[1], rel=1e-4)


def test_without_silencing_nothing_is_logged_and_with_quantile_zero_the_candidates_are(make_trainer, tmp_path):
    off = train(make_trainer(s2t_prob_threshold=0.0, output_dir=str(tmp_path / "off")))
    assert len(off) == 0
    baseline = train(make_trainer(s2t_entropy_quantile=0.0, output_dir=str(tmp_path / "baseline")))
    assert not baseline.silenced.any() and baseline.candidate.any() and baseline.entropy_threshold.notna().any()


def test_evaluation_logs_no_token(make_trainer, dataset):
    trainer = make_trainer(eval_dataset=dataset.select(range(4)), per_device_eval_batch_size=4)
    trainer.evaluate()
    trainer.token_log.write()
    assert read_token_log(trainer.args.output_dir).num_rows == 0


def test_masked_truncated_completions_are_not_logged(make_trainer):
    trainer = make_trainer(mask_truncated_completions=True, max_completion_length=4, token_stats_steps=1)
    log = train(trainer)
    lengths = log.groupby("completion_id").position.max() + 1
    ended = {
        row["completion_id"]
        for row in read_token_log(trainer.args.output_dir, "completions").to_pylist()
        if row["tokens"]
    }
    assert (lengths <= 4).all() and set(log[log.silenced].completion_id) <= ended


def test_the_sum_of_squared_probabilities_is_that_of_the_logits():
    model = build_model()
    ids = torch.randint(2, 25, (3, 9))
    forward = model.forward
    from trl.trainer.utils import add_fused_lm_head

    add_fused_lm_head(model, 0.5, outputs=("log_probs", "entropy"))
    with capture_sum_sq(model, 0.5, False) as captured:
        model(ids, labels=ids, fused_lm_head=True)
        plain = model(ids).logits
    expected = (plain[:, :-1] / 0.5).softmax(-1).square().sum(-1).log()
    torch.testing.assert_close(captured[0], expected)
    assert len(captured) == 1
    model(ids, labels=ids, fused_lm_head=True)
    assert len(captured) == 1 and model.forward != forward


def test_alternatives_are_the_most_probable_tokens_best_first():
    model = build_model().eval()
    ids = torch.randint(2, 25, (12,))
    (tokens, probs), _ = find_alternatives(model, ids, [5, 11], temperature=2.0, count=3)
    expected = (model(ids[None]).logits[0, 4] / 2.0).softmax(-1).topk(3)
    assert tokens == expected.indices.tolist()
    torch.testing.assert_close(torch.tensor(probs), expected.values)
