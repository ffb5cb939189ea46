"""The memory estimate against numbers made by hand."""

from pathlib import Path

import pytest
from transformers import Qwen3Config
from trl import GRPOConfig, ModelConfig

from stapo_trl.cli.preview.memory import CONTEXT, GIB, STAGES, count_parameters, count_vllm_sequences, estimate_memory
from stapo_trl.cli.preview.plan import find_model_config
from stapo_trl.cli.recipes import read_recipe


SIZES = {  # as the model cards print them, in billions
    "qwen3-0.6b-lora-colab": 0.6,
    "qwen3-1.7b-stapo": 1.7,
    "qwen3-4b-qlora": 4.0,
    "qwen3-8b-stapo": 8.2,
    "qwen3-14b-stapo": 14.8,
}


def test_every_engine_has_its_configuration():
    for engine in STAGES:
        assert (Path(__file__).parents[3] / "accelerate_configs" / f"{engine}.yaml").is_file()


def test_the_models_of_the_recipes_have_their_published_sizes():
    found = {}
    for name in SIZES:
        recipe = read_recipe(name)
        config = find_model_config(recipe["model_name_or_path"], recipe["about"])
        found[name] = round(count_parameters(config, ModelConfig()).total / 1e9, 1)
    assert found == SIZES


@pytest.fixture
def config():
    """100 x 8 table, tied; one layer: q and o 8 x 8, k and v 8 x 4, three 8 x 16 = 576 weights, and norms."""
    return Qwen3Config(
        vocab_size=100,
        hidden_size=8,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=4,
        tie_word_embeddings=True,
    )


def make_args(tmp_path, **settings):
    return GRPOConfig(
        output_dir=str(tmp_path),
        use_cpu=True,
        **{"bf16": False, "per_device_train_batch_size": 8, "steps_per_generation": 2, **settings},
    )


def test_parameters_are_counted_without_weights(config):
    size = count_parameters(config, ModelConfig())
    assert (size.total, size.linear) == (800 + 576 + 2 * 8 + 2 * 4 + 8, 576) and size.trained == size.total
    # rank 2 on q (8 -> 8) and v (8 -> 4): 2 x (8 + 8) + 2 x (8 + 4)
    adapter = ModelConfig(use_peft=True, lora_r=2, lora_target_modules=["q_proj", "v_proj"])
    assert count_parameters(config, adapter).trained == 56


def test_full_float32_training_takes_16_bytes_a_parameter(config, tmp_path):
    size, args = count_parameters(config, ModelConfig()), make_args(tmp_path)
    estimate = estimate_memory(config, size, ModelConfig(), args, sequence_length=10)
    part = {name: round(value * GIB) for name, value in estimate.items()}
    assert part["weights"] == part["gradients"] == 4 * 1408 and part["optimizer"] == 8 * 1408
    # 80 tokens of width 8 in float32, and one layer: 80 x 4 x (6 x 8 + 3 x (8 + 2 x 4) + 4 x 16)
    assert part["activations"] == 80 * 8 * 4 + 80 * 4 * 160
    assert part["loss"] == 80 * 100 * 4 + 100 * 8 * 4
    assert part["generation: key-value cache"] == 16 * 10 * 2 * 1 * 4 * 4
    assert part["copies in the compute type"] == 0
    held = part["weights"] + part["optimizer"] + part["generation: key-value cache"]
    assert estimate["peak of generation"] - CONTEXT == pytest.approx(held / GIB)


def test_an_engine_shards_what_its_stage_says(config, tmp_path, monkeypatch):
    args = make_args(tmp_path)
    monkeypatch.setattr(type(args), "world_size", 4)
    size = count_parameters(config, ModelConfig())
    # In how many parts each engine cuts weights, gradients and optimizer states
    parts = {
        "multi_gpu": (1, 1, 1),
        "deepspeed_zero1": (1, 1, 4),
        "deepspeed_zero2": (1, 4, 4),
        "fsdp2.yaml": (4, 4, 4),
    }
    found = {}
    for engine in parts:
        estimate = estimate_memory(config, size, ModelConfig(), args, 10, engine)
        totals = {"weights": 4 * 1408, "gradients": 4 * 1408, "optimizer": 8 * 1408}
        found[engine] = tuple(round(value / (estimate[name] * GIB), 6) for name, value in totals.items())
    assert found == parts


def test_four_bits_and_an_adapter_take_less(config, tmp_path):
    model_args = ModelConfig(use_peft=True, lora_r=2, lora_target_modules=["q_proj", "v_proj"], load_in_4bit=True)
    model_args.dtype = "bfloat16"
    size = count_parameters(config, model_args)
    args = make_args(tmp_path, bf16=True, optim="paged_adamw_8bit")
    estimate = estimate_memory(config, size, model_args, args, 10)
    assert estimate["weights"] * GIB == pytest.approx(576 * (0.5 + 4 / 64) + (1408 - 576) * 2 + 56 * 4)
    assert estimate["gradients"] * GIB == pytest.approx(56 * 4) and estimate["optimizer"] * GIB == pytest.approx(
        56 * 2
    )


def test_vllm_takes_its_share_and_sleeps_during_the_update(config, tmp_path):
    size = count_parameters(config, ModelConfig())
    peaks = {}
    for sleeps in (False, True):
        args = make_args(tmp_path, use_vllm=True, vllm_gpu_memory_utilization=0.5, vllm_enable_sleep_mode=sleeps)
        estimate = estimate_memory(config, size, ModelConfig(), args, 10, gpu_memory=16)
        assert estimate["generation: vLLM"] == 8 and estimate["peak of generation"] > 8
        peaks[sleeps] = estimate["peak of the update"]
    assert peaks[False] - peaks[True] == pytest.approx(8)
    # 6 GiB less weights, 2 layers' worth (k and v) of 4 values of 2 bytes for each of 10 tokens
    assert count_vllm_sequences(config, size, args, 10, 16) == pytest.approx((6 * GIB - 2 * 1408) / (2 * 4 * 2 * 10))
