import collections
import random

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    Gemma3TextConfig,
    GenerationConfig,
    GPT2Config,
    MistralConfig,
    Qwen3NextConfig,
)
from transformers.generation.logits_process import TopPLogitsWarper

from stapo_trl.arithmetic.warm_start import build_model
from stapo_trl.evaluation.sampling.decoding import Batch, choose, decode
from stapo_trl.evaluation.sampling.settings import SamplingSettings


TINY = {
    "vocab_size": 40,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 128,
    "pad_token_id": 0,
    "bos_token_id": None,
    "eos_token_id": 1,
}
MODELS = {
    "full attention": lambda: build_model(),
    "absolute positions": lambda: GPT2Config(
        vocab_size=40, n_positions=128, n_embd=32, n_layer=2, n_head=4, bos_token_id=1, eos_token_id=1
    ),
    "a window of 5": lambda: MistralConfig(**TINY, sliding_window=5),
    "a window of 5 in some layers": lambda: Gemma3TextConfig(
        **TINY, sliding_window=5, layer_types=["sliding_attention", "full_attention"]
    ),
    "a recurrent state in some layers": lambda: Qwen3NextConfig(
        **TINY,
        layer_types=["linear_attention", "full_attention"],
        linear_num_value_heads=4,
        linear_num_key_heads=2,
        linear_key_head_dim=8,
        linear_value_head_dim=8,
        num_experts=4,
        num_experts_per_tok=2,
        moe_intermediate_size=16,
        shared_expert_intermediate_size=16,
        decoder_sparse_step=1,
    ),
}


def make(name):
    torch.manual_seed(0)
    made = MODELS[name]()
    model = made if isinstance(made, torch.nn.Module) else AutoModelForCausalLM.from_config(made)
    for parameter in model.parameters():
        parameter.data *= 3  # a spread of scores: greedy answers differ, and so do their lengths
    return model.eval()


def prompts_of(lengths, seed=0):
    rng = random.Random(seed)
    return [[rng.randint(2, 24) for _ in range(length)] for length in lengths]


def run(model, prompts, settings, batch_size, ends=(1, 3, 7)):
    seeds = [f"s{index}" for index in range(len(prompts))]
    rows = [row for rows in decode(model, prompts, seeds, settings, set(ends), batch_size) for row in rows]
    assert len(rows) == len(prompts)
    return {row.index: row for row in rows}


def test_greedy_answers_are_those_of_generate_one_by_one():
    config = GenerationConfig(max_new_tokens=20, do_sample=False, eos_token_id=[1, 3, 7], pad_token_id=0)
    failures = []
    for name in MODELS:
        model, prompts = make(name), prompts_of([3, 9, 1, 5, 7, 2, 4, 8, 6, 3])
        found = run(model, prompts, SamplingSettings(0.0, 1.0, 20), batch_size=3)
        for index, prompt in enumerate(prompts):
            ids = torch.tensor([prompt])
            expected = model.generate(ids, attention_mask=torch.ones_like(ids), generation_config=config)
            tokens, ended = found[index].tokens, found[index].ended
            if tokens != expected[0, len(prompt) :].tolist() or ended != (tokens[-1] in (1, 3, 7)):
                failures.append((name, index))
        assert len({len(row.tokens) for row in found.values()}) > 1, "without skew nothing leaves the batch early"
    assert not failures


def test_only_caches_by_position_take_new_rows():
    assert {name: Batch(make(name)).takes_rows for name in MODELS} == {
        "full attention": True,
        "absolute positions": True,
        "a window of 5": True,
        "a window of 5 in some layers": True,
        "a recurrent state in some layers": False,
    }


def test_a_sample_does_not_depend_on_its_batch():
    model, prompts = make("full attention"), prompts_of([3, 9, 1, 5, 7, 2, 4, 8])
    settings = SamplingSettings(1.0, 0.9, 20)
    alone = run(model, prompts, settings, batch_size=1)
    for batch_size in (2, 5, 8):
        found = run(model, prompts, settings, batch_size)
        assert {index: row.tokens for index, row in found.items()} == {i: row.tokens for i, row in alone.items()}
        for index, row in found.items():
            assert row.entropy == pytest.approx(alone[index].entropy, rel=1e-4)


def test_samples_of_one_prompt_differ_by_their_seed_and_repeat_with_it():
    model, prompts = make("full attention"), prompts_of([4]) * 6
    settings = SamplingSettings(1.0, 1.0, 20)
    first, second = (run(model, prompts, settings, batch_size=4) for _ in range(2))
    assert [first[i].tokens for i in range(6)] == [second[i].tokens for i in range(6)]
    assert len({tuple(row.tokens) for row in first.values()}) == 6


def test_tokens_are_drawn_with_the_models_probabilities():
    logits = torch.tensor([0.5, 0.3, 0.2]).log().repeat(20_000, 1)
    rng = random.Random(0)
    drawn = choose(logits, SamplingSettings(0.5, 1.0), [rng.random() for _ in range(20_000)])
    counts = collections.Counter(drawn.tolist())
    # At temperature 0.5 the probabilities are squared: 0.25, 0.09, 0.04 over 0.38; a standard error is at most 0.0035
    for token, expected in enumerate((0.25 / 0.38, 0.09 / 0.38, 0.04 / 0.38)):
        assert counts[token] / 20_000 == pytest.approx(expected, abs=0.012)


def test_top_p_keeps_the_tokens_that_transformers_keeps():
    logits = torch.randn(50, 30, generator=torch.Generator().manual_seed(0))
    points = [(i + 0.5) / 400 for i in range(400)]
    for top_p in (0.1, 0.5, 0.9, 0.999):
        kept = TopPLogitsWarper(top_p)(None, logits.double()).softmax(-1)
        for row in range(10):
            drawn = choose(logits[row].repeat(400, 1), SamplingSettings(1.0, top_p), points)
            shares = torch.bincount(drawn, minlength=30) / 400
            torch.testing.assert_close(shares, kept[row].float(), rtol=0, atol=1 / 400)


def test_tokens_of_no_probability_are_never_drawn():
    logits = torch.tensor([[float("-inf"), 0.0, float("-inf"), 0.0, float("-inf")]]).repeat(2, 1)
    for top_p in (1.0, 0.9):
        assert choose(logits, SamplingSettings(1.0, top_p), [0.0, 1 - 2**-53]).tolist() == [1, 3]


def test_entropy_is_that_of_the_model_before_temperature_and_top_p():
    model, prompt = make("full attention"), prompts_of([5])[0]
    with torch.no_grad():
        expected = torch.distributions.Categorical(logits=model(torch.tensor([prompt])).logits[0, -1]).entropy()
    for settings in (SamplingSettings(1.0, 1.0, 1), SamplingSettings(0.3, 0.5, 1), SamplingSettings(0.0, 1.0, 1)):
        assert run(model, [prompt], settings, 1)[0].entropy == pytest.approx(expected.item(), rel=1e-4)


def test_an_answer_ends_at_the_models_window():
    model = make("full attention")
    model.config.max_position_embeddings = 10
    row = run(model, prompts_of([6]), SamplingSettings(1.0, 1.0, 100), 1, ends=(99,))[0]
    assert len(row.tokens) == 4 and not row.ended
    with pytest.raises(ValueError, match="window is 10"):
        run(model, prompts_of([10]), SamplingSettings(), 1)


def test_scores_that_are_not_finite_stop_the_run():
    model = make("full attention")
    model.lm_head.weight.data[:] = float("nan")
    with pytest.raises(RuntimeError, match="not finite"):
        run(model, prompts_of([3]), SamplingSettings(1.0, 1.0, 3), 1)


def test_modes_are_restored_module_by_module_also_when_stopped_early():
    model, prompts = make("full attention"), prompts_of([3, 4])
    model.train()
    model.model.norm.eval()
    before = [module.training for module in model.modules()]
    rows = decode(model, prompts, ["a", "b"], SamplingSettings(1.0, 1.0, 50), {1}, 1)
    next(rows)
    assert not model.training
    rows.close()
    assert [module.training for module in model.modules()] == before
