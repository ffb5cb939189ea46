"""The vLLM backend against a stand-in that keeps to the engine's documented interface."""

import json
import sys
import types
from collections import deque
from pathlib import Path

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import GenerationConfig

from stapo_trl import cli
from stapo_trl.arithmetic.warm_start import build_tokenizer
from stapo_trl.evaluation import SamplingSettings, VLLMSampler, evaluate
from stapo_trl.evaluation.sampling.policy import load_policy


@pytest.fixture
def vllm(monkeypatch):
    """A module `vllm` whose engine answers `\\boxed{1}` in reverse order, two requests a step."""
    made = types.ModuleType("vllm")
    made.__spec__ = types.SimpleNamespace(name="vllm")
    made.engines = []

    class SamplingParams:
        def __init__(self, **options):
            self.__dict__.update(options)

    class LLMEngine:
        @classmethod
        def from_engine_args(cls, args):
            engine = cls()
            engine.args, engine.requests, engine.waiting = args, [], deque()
            made.engines.append(engine)
            return engine

        def add_request(self, request_id, prompt, params, lora_request=None):
            assert isinstance(request_id, str)
            self.requests.append((prompt, params, lora_request))
            self.waiting.append(request_id)

        def has_unfinished_requests(self):
            return bool(self.waiting)

        def step(self):
            tokens = build_tokenizer()("\\boxed{1}")["input_ids"]
            outputs = [types.SimpleNamespace(request_id="0", finished=False, outputs=[])]
            for _ in range(min(2, len(self.waiting))):
                request_id = self.waiting.pop()
                reason = "length" if request_id == "0" else "stop"
                output = types.SimpleNamespace(token_ids=(*tokens, 1), finish_reason=reason)
                outputs.append(types.SimpleNamespace(request_id=request_id, finished=True, outputs=[output]))
            return outputs

    made.EngineArgs, made.SamplingParams, made.LLMEngine = dict, SamplingParams, LLMEngine
    lora = types.ModuleType("vllm.lora.request")
    lora.LoRARequest = lambda name, number, path: (name, number, path)
    parameters = types.ModuleType("vllm.sampling_params")
    parameters.RequestOutputKind = types.SimpleNamespace(FINAL_ONLY="final only")
    for name, module in {
        "vllm": made,
        "vllm.lora": types.ModuleType("vllm.lora"),
        "vllm.lora.request": lora,
        "vllm.sampling_params": parameters,
    }.items():
        monkeypatch.setitem(sys.modules, name, module)
    return made


def test_one_engine_gets_every_sample_with_its_own_seed_and_every_field(vllm, saved, problems, tmp_path):
    GenerationConfig(eos_token_id=[1, 5], do_sample=True, temperature=0.1).save_pretrained(saved)
    settings = SamplingSettings(0.6, 0.8, 30, seed=3)
    result = evaluate(VLLMSampler(saved), {"sums": problems}, 3, settings, tmp_path / "out")
    (engine,) = vllm.engines
    assert engine.args["model"] == saved and engine.args["enable_prefix_caching"]
    assert engine.args["generation_config"] == "vllm" and "enable_lora" not in engine.args
    assert len(engine.requests) == 18 == len({params.seed for _, params, _ in engine.requests})
    prompt, params, adapter = engine.requests[0]
    assert prompt == {"prompt_token_ids": build_tokenizer()(problems[0]["prompt"])["input_ids"]} and adapter is None
    sent = {name: value for name, value in vars(params).items() if name != "seed"}
    assert sent == {
        "temperature": 0.6,
        "top_p": 0.8,
        "max_tokens": 30,
        "top_k": 0,
        "min_p": 0.0,
        "repetition_penalty": 1.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "stop_token_ids": [1, 5],
        "detokenize": False,
        "output_kind": "final only",
    }
    entry = result["benchmarks"]["sums"]
    assert entry["extracted"] == 1 and entry["entropy"] is None and entry["truncated"] == pytest.approx(1 / 18)
    lines = [json.loads(line) for line in open(tmp_path / "out" / "t0.6-p0.8.samples.jsonl")][1:]
    assert {line["text"] for line in lines} == {"\\boxed{1}"} and len(lines) == 18


def test_a_seed_depends_on_the_sample_alone(vllm, saved, problems):
    def seeds(dataset, n, seed=0):
        evaluate(VLLMSampler(saved), {"sums": dataset}, n, SamplingSettings(seed=seed))
        return [params.seed for _, params, _ in vllm.engines[-1].requests]

    assert seeds(problems.select([2]), 2) == seeds(problems, 4)[8:10] != seeds(problems.select([2]), 2, seed=1)


def test_an_adapter_is_served_on_its_base(vllm, saved, problems, tmp_path):
    model, _ = load_policy(saved)
    get_peft_model(model, LoraConfig(r=4, target_modules=["q_proj"])).save_pretrained(tmp_path / "adapter")
    evaluate(VLLMSampler(str(tmp_path / "adapter")), {"sums": problems}, 1, SamplingSettings())
    (engine,) = vllm.engines
    assert (engine.args["model"], engine.args["enable_lora"], engine.args["max_lora_rank"]) == (saved, True, 4)
    assert engine.requests[0][2] == ("policy", 1, str(tmp_path / "adapter"))


def test_the_command_takes_vllm_where_it_is_installed(vllm, saved, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cli.main(["evaluate", "--model", saved, "--benchmarks", "arithmetic", "--size", "3", "--n", "2"])
    assert len(vllm.engines) == 1
    (result,) = Path("evaluations").rglob("*.json")
    assert json.loads(result.read_text())["backend"] == "vllm"
    assert torch.is_grad_enabled()
