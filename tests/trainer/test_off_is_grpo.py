"""Switched off, or with thresholds that silence nothing, the trainer is GRPOTrainer: weights, generators and metrics."""

import copy

import pytest
import torch
from peft import (
    IA3Config,
    LoHaConfig,
    LoKrConfig,
    LoraConfig,
    OFTConfig,
    PrefixTuningConfig,
    PromptTuningConfig,
)
from toys import SHAPES, make_inputs, run_step, weights
from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM, set_seed
from trl import GRPOConfig, GRPOTrainer

from stapo_trl import STAPOConfig, STAPOTrainer
from stapo_trl.arithmetic.warm_start import VOCABULARY


PROJECTIONS = ["q_proj", "k_proj", "v_proj", "o_proj"]  # with one alone, module dropout may leave nothing to train
LOSS_TYPES = ["grpo", "bnpo", "dr_grpo", "dapo", "cispo", "sapo", "luspo", "vespo"]
SETTINGS = {
    **{loss_type: {"loss_type": loss_type} for loss_type in LOSS_TYPES},
    "checkpointing": {"gradient_checkpointing": True},
    "bf16": {"bf16": True},
}
ADAPTERS = {
    "LoRA": LoraConfig(target_modules=PROJECTIONS),
    "LoRA with dropout": LoraConfig(target_modules=PROJECTIONS, lora_dropout=0.5),
    "DoRA": LoraConfig(target_modules=PROJECTIONS, lora_dropout=0.5, use_dora=True),
    "LoHa": LoHaConfig(target_modules=PROJECTIONS, rank_dropout=0.5, module_dropout=0.2, init_weights=False),
    "LoKr": LoKrConfig(target_modules=PROJECTIONS, rank_dropout=0.5, module_dropout=0.2, init_weights=False),
    "OFT": OFTConfig(target_modules=PROJECTIONS, oft_block_size=4, module_dropout=0.2),
    "IA3": IA3Config(target_modules=PROJECTIONS, feedforward_modules=[]),
    "modules to save": LoraConfig(target_modules=PROJECTIONS, modules_to_save=["embed_tokens"]),
    "prompt tuning": PromptTuningConfig(num_virtual_tokens=2, task_type="CAUSAL_LM"),
    "prefix tuning": PrefixTuningConfig(num_virtual_tokens=2, task_type="CAUSAL_LM"),
}


def run(make_trainer, trainer_class, config_class, **settings) -> tuple[dict, torch.Tensor, list[dict]]:
    settings = {name: copy.deepcopy(value) for name, value in settings.items()}
    trainer = make_trainer(trainer_class, config_class, **settings)
    trainer.train()
    timing = ("runtime", "per_second", "step_time")
    logs = [
        {name: value for name, value in entry.items() if not any(word in name for word in timing)}
        for entry in trainer.state.log_history
    ]
    return weights(trainer), torch.get_rng_state(), logs


def differences(make_trainer, **settings) -> list[str]:
    """What differs from GRPOTrainer's run, off and with a threshold that silences nothing."""
    expected = run(make_trainer, GRPOTrainer, GRPOConfig, **settings)
    found = []
    for own in ({"s2t_prob_threshold": 0.0}, {"s2t_entropy_quantile": 0.0}):
        weight, generator, logs = run(make_trainer, STAPOTrainer, STAPOConfig, **own, **settings)
        if any(not torch.equal(value, weight[name]) for name, value in expected[0].items()):
            found.append(f"weights with {own}")
        if not torch.equal(generator, expected[1]):
            found.append(f"generator with {own}")
        is_off = "s2t_prob_threshold" in own
        shared = [{name: x for name, x in entry.items() if is_off or "s2t/" not in name} for entry in logs]
        if shared != expected[2]:
            found.append(f"metrics with {own}")
        if not is_off and not any(entry.get("s2t/candidate_share", 0) > 0 for entry in logs):
            found.append("no candidate")
    return found


@pytest.mark.parametrize("shape", SHAPES)
def test_it_is_grpo_under_every_loss(make_trainer, shape):
    found = {name: differences(make_trainer, **settings, **SHAPES[shape]) for name, settings in SETTINGS.items()}
    assert not any(found.values()), found


def test_it_is_grpo_with_every_adapter_whatever_random_numbers_it_draws(make_trainer):
    found = {
        name: differences(make_trainer, peft_config=peft_config, **SHAPES["accumulation"])
        for name, peft_config in ADAPTERS.items()
    }
    assert not any(found.values()), found


@pytest.mark.parametrize("num_micro", [1, 2])
def test_the_auxiliary_loss_of_mixtures_of_experts_stays(make_trainer, monkeypatch, num_micro):
    config = Qwen3MoeConfig(
        vocab_size=len(VOCABULARY),
        hidden_size=32,
        moe_intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=16,
        num_experts=4,
        num_experts_per_tok=2,
        output_router_logits=True,
        router_aux_loss_coef=0.1,
    )
    gradients = []
    for classes, own in (
        ((STAPOTrainer, STAPOConfig), {"s2t_entropy_quantile": 0.0}),
        ((GRPOTrainer, GRPOConfig), {}),
    ):
        set_seed(0)
        model = Qwen3MoeForCausalLM(copy.deepcopy(config))
        settings = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": num_micro}
        trainer = make_trainer(*classes, model=model, **settings, **own)
        run_step(trainer, [make_inputs(4, 6, seed) for seed in range(num_micro)])
        assert len(trainer._metrics["train"]["aux_loss"]) == num_micro
        gradients.append([parameter.grad for parameter in trainer.model.parameters()])
    torch.testing.assert_close(*gradients, rtol=0, atol=0)
