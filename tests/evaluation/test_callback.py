import copy
import random

import numpy as np
import pytest
import torch
from datasets import concatenate_datasets
from peft import LoraConfig
from toys import build_byte_model, build_byte_tokenizer, weights
from transformers import AutoModelForCausalLM
from trl import GRPOConfig, GRPOTrainer

from stapo_trl import STAPOConfig, STAPOTrainer
from stapo_trl.arithmetic.problems import load_arithmetic
from stapo_trl.arithmetic.warm_start import build_model, build_tokenizer
from stapo_trl.evaluation import BenchmarkCallback, SamplingSettings
from stapo_trl.evaluation import callback as module


SHORT = SamplingSettings(1.0, 1.0, 8)
SUMS = {"sums": load_arithmetic("validation", 5, num_terms=3)}


def callback(every_steps=1, n=2, **options):
    return BenchmarkCallback(every_steps, SUMS, n, SHORT, **options)


def test_metrics_stand_in_the_log_of_their_step(make_trainer):
    for trainer_class, config_class in ((GRPOTrainer, GRPOConfig), (STAPOTrainer, STAPOConfig)):
        trainer = make_trainer(trainer_class, config_class, max_steps=4, callbacks=[callback(every_steps=2)])
        trainer.train()
        entries = [entry for entry in trainer.state.log_history if "sums/avg@2" in entry]
        assert [entry["step"] for entry in entries] == [2, 4]
        assert {"sums/pass@2", "sums/no_answer", "sums/truncated", "sums/length", "reward"} <= entries[0].keys()


def test_a_last_measurement_after_the_last_log_stands_in_the_summary(make_trainer):
    trainer = make_trainer(max_steps=2, logging_steps=10, callbacks=[callback(every_steps=2)])
    trainer.train()
    (entry,) = [entry for entry in trainer.state.log_history if "sums/avg@2" in entry]
    assert entry["step"] == 2 and "train_runtime" in entry


def test_with_the_trainer_trackers_see_them_too(make_trainer):
    class Tracker(module.TrainerCallback):
        seen = []

        def on_log(self, args, state, control, logs=None, **kwargs):
            self.seen.append(dict(logs))

    trainer = make_trainer(callbacks=[Tracker()])
    trainer.add_callback(callback(trainer=trainer))
    trainer.train()
    assert sum("sums/avg@2" in logs for logs in Tracker.seen) == 2
    assert sum("sums/avg@2" in entry for entry in trainer.state.log_history) == 2


def test_the_run_is_the_same_with_and_without(make_trainer):
    adapter = LoraConfig(r=2, lora_dropout=0.3, target_modules=["q_proj"])
    for settings in ({}, {"gradient_checkpointing": True}, {"peft_config": adapter}):
        plain = make_trainer(max_steps=3, **copy.deepcopy(settings))
        plain.train()
        measured = make_trainer(max_steps=3, **copy.deepcopy(settings), callbacks=[callback()])
        measured.train()
        after = weights(measured)
        different = [name for name, value in weights(plain).items() if not torch.equal(value, after[name])]
        assert not different, settings


def test_measuring_touches_nothing():
    model, tokenizer = build_model(), build_tokenizer()
    tokenizer.padding_side = "right"
    model.train()
    model.model.norm.eval()
    model.config.use_cache = False
    model.gradient_checkpointing_enable()
    random.seed(0), np.random.seed(0), torch.manual_seed(0)

    def state():
        return (
            random.getstate(),
            repr(np.random.get_state()),
            torch.get_rng_state().tolist(),
            [each.training for each in model.modules()],
            (tokenizer.padding_side, tokenizer.pad_token, tokenizer.truncation_side),
            model.generation_config.to_dict(),
            model.config.to_dict(),
            model.is_gradient_checkpointing,
            [parameter.requires_grad for parameter in model.parameters()],
            [parameter.grad for parameter in model.parameters()],
            torch.is_grad_enabled(),
        )

    before = state()
    made = callback()
    made._measure(1, model, tokenizer)
    assert made.metrics["sums/length"] > 0 and state() == before


def test_the_best_checkpoint_is_chosen_by_the_benchmark(make_trainer, dataset, tmp_path, monkeypatch):
    found = iter([0.2, 0.9, 0.4])  # of steps 1 to 3
    measure = module.measure

    def scripted(benchmark, samples):
        return measure(benchmark, samples) | {"accuracy": next(found)}

    monkeypatch.setattr(module, "measure", scripted)
    trainer = make_trainer(
        max_steps=3,
        eval_dataset=dataset.select(range(4)),
        per_device_eval_batch_size=4,
        eval_strategy="steps",
        eval_steps=1,
        save_strategy="steps",
        save_steps=1,
        load_best_model_at_end=True,
        metric_for_best_model="sums/avg@2",
        greater_is_better=True,
        callbacks=[callback()],
    )
    trainer.train()
    assert trainer.state.best_metric == 0.9
    assert trainer.state.best_model_checkpoint.endswith("checkpoint-2")
    best = AutoModelForCausalLM.from_pretrained(tmp_path / "run" / "checkpoint-2").state_dict()
    assert all(torch.equal(value, best[name]) for name, value in weights(trainer).items())
    assert [e["eval_sums/avg@2"] for e in trainer.state.log_history if "eval_sums/avg@2" in e] == [0.2, 0.9, 0.4]


def test_what_cannot_work_is_refused_at_construction():
    with pytest.raises(ValueError, match="every_steps"):
        callback(every_steps=0)
    with pytest.raises(ValueError, match="temperature 0"):
        BenchmarkCallback(1, SUMS, 4, SamplingSettings(0.0))
    with pytest.raises(ValueError, match="no benchmark 'aime'"):
        BenchmarkCallback(1, ["aime"])


def test_weights_spread_over_processes_are_refused(make_trainer):
    trainer = make_trainer(callbacks=[callback()])
    next(trainer.model.parameters()).ds_id = 0  # as DeepSpeed ZeRO-3 marks them
    with pytest.raises(ValueError, match="ZeRO-3"):
        trainer.train()


def test_prompts_are_rendered_with_the_trainers_settings(make_trainer, monkeypatch):
    rendered = []
    monkeypatch.setattr(module, "sample_answers", lambda sampler, *_, **__: rendered.append(sampler) or [])
    monkeypatch.setattr(
        module,
        "measure",
        lambda *_: dict.fromkeys(("accuracy", "no_answer", "truncated", "length"), 0) | {"pass@k": {"2": [0]}},
    )
    tokenizer = build_byte_tokenizer("qwen3")
    chats = SUMS["sums"].map(lambda row: {"prompt": [{"role": "user", "content": row["prompt"]}]})
    for options in (None, {"enable_thinking": False}):
        trainer = make_trainer(
            model=build_byte_model(tokenizer),
            processing_class=tokenizer,
            train_dataset=concatenate_datasets([chats] * 2),
            reward_funcs=lambda completions, **kwargs: [0.0] * len(completions),
            chat_template_kwargs=options,
            max_steps=1,
            callbacks=[BenchmarkCallback(1, {"sums": chats}, 2, SHORT)],
        )
        trainer.train()
    assert [sampler.chat_template_kwargs for sampler in rendered] == [{}, {"enable_thinking": False}]
