import torch
from peft import LoraConfig, get_peft_model
from torch import nn

from stapo_trl.arithmetic.warm_start import build_model
from stapo_trl.trainer.dropout import get_rng_state, has_dropout, replay


def test_dropout_is_found_in_modules_and_in_the_configuration():
    model = build_model()
    assert not has_dropout(model)
    model.config.attention_dropout = 0.1
    assert has_dropout(model)
    assert not has_dropout(get_peft_model(build_model(), LoraConfig(target_modules=["q_proj"], lora_dropout=0.0)))
    assert has_dropout(get_peft_model(build_model(), LoraConfig(target_modules=["q_proj"], lora_dropout=0.1)))


def test_replay_repeats_the_random_numbers_and_puts_the_generator_back():
    cpu, dropout = torch.device("cpu"), nn.Dropout(0.5)
    state = get_rng_state(cpu)
    first = dropout(torch.ones(100))
    after = torch.get_rng_state()
    with replay(state, cpu):
        torch.testing.assert_close(dropout(torch.ones(100)), first, rtol=0, atol=0)
    assert torch.equal(torch.get_rng_state(), after)


def test_replay_of_nothing_changes_nothing():
    before = torch.get_rng_state()
    with replay(None, torch.device("cpu")):
        torch.rand(1)
    assert not torch.equal(torch.get_rng_state(), before)
