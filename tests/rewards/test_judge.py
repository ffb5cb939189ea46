import pickle
import sys
import types

import pytest

from stapo_trl.rewards import LLMJudge
from stapo_trl.rewards.judge import TEMPLATE, read_letter


def test_only_a_clear_letter_counts():
    replies = {
        "A": "A",
        " A\n": "A",
        " B\n": "B",
        "C.": "C",
        "**A**": "A",
        r"The candidate is right. \boxed{A}": "A",
        r"First \boxed{A}, no: \boxed{B}": "B",
        "Analysis: equal values.\nFinal Judgment: A": "A",
        "Final Judgment: **B** - INCORRECT": "B",
        "A correct answer would be 5": None,
        "An answer": None,
        "AB": None,
        "": None,
        "The answer is A or B": None,
    }
    assert {reply: read_letter(reply) for reply in replies} == replies


def fake_vllm(monkeypatch, replies):
    module = types.ModuleType("vllm")
    module.seen = []

    class LLM:
        def __init__(self, model, **options):
            module.model = (model, options)

        def chat(self, conversations, sampling, use_tqdm):
            module.seen.append(conversations)
            return [types.SimpleNamespace(outputs=[types.SimpleNamespace(text=reply)]) for reply in replies]

    module.LLM, module.SamplingParams = LLM, lambda **options: options
    monkeypatch.setitem(sys.modules, "vllm", module)
    return module


def test_vllm_judges_one_batch_with_recorded_answers(monkeypatch):
    vllm = fake_vllm(monkeypatch, ["A", "B", "C", "maybe"])
    judge = LLMJudge("judge", backend="vllm", model_kwargs={"gpu_memory_utilization": 0.2})
    responses = ["<think>private</think>{public}", "two", "three", "four"]
    assert judge(["q{}"] * 4, [r"\frac{1}{2}"] * 4, responses) == ["A", "B", "C", None]
    assert vllm.model == ("judge", {"gpu_memory_utilization": 0.2})
    prompt = vllm.seen[0][0][0]["content"]
    assert prompt == TEMPLATE.format(question="q{}", gold=r"\frac{1}{2}", response="{public}")
    assert len(vllm.seen) == 1


def test_long_responses_are_shown_from_their_end(monkeypatch):
    vllm = fake_vllm(monkeypatch, ["A"])
    LLMJudge("judge", backend="vllm", max_characters=5)(["q"], ["5"], ["x" * 100 + "final"])
    assert "[Response]\nfinal\n" in vllm.seen[0][0][0]["content"]


def test_contradictions_are_refused():
    with pytest.raises(ValueError, match="backend"):
        LLMJudge("judge", backend="sglang")
    with pytest.raises(ValueError, match="tokenizer"):
        LLMJudge(object())


def test_named_judge_pickles_without_its_model():
    judge = LLMJudge("judge")
    judge._loaded = lambda: None
    assert pickle.loads(pickle.dumps(judge))._loaded is None


@pytest.fixture(scope="module")
def tiny():
    """A model over words with random weights: what it replies is arbitrary, but always the same."""
    transformers, tokenizers = pytest.importorskip("transformers"), pytest.importorskip("tokenizers")
    import torch

    torch.manual_seed(0)
    words = ["<pad>", "<eos>", "<unk>", "A", "B", "C"]
    core = tokenizers.Tokenizer(tokenizers.models.WordLevel({w: i for i, w in enumerate(words)}, unk_token="<unk>"))
    core.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=core, unk_token="<unk>", pad_token="<pad>", eos_token="<eos>", padding_side="right"
    )
    config = transformers.Qwen2Config(
        vocab_size=6,
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
    )
    return transformers.Qwen2ForCausalLM(config).eval(), tokenizer


def test_batched_replies_equal_single_ones(tiny):
    model, tokenizer = tiny
    questions, golds = ["What ?"] * 5, ["A", "B", "C", "A", "B"]
    responses = ["A " * n for n in (1, 5, 9, 30, 2)]
    replies = {}
    for size in (1, 4):
        judge = LLMJudge(model, tokenizer, batch_size=size, max_new_tokens=3)
        replies[size] = judge(questions, golds, responses)
        prompts = [
            TEMPLATE.format(question=q, gold=g, response=r)
            for q, g, r in zip(questions, golds, responses, strict=True)
        ]
        replies[-size] = judge._transformers(prompts)
    assert replies[1] == replies[4] and replies[-1] == replies[-4]
    assert tokenizer.padding_side == "right"


def test_certain_judge_decides(tiny):
    model, tokenizer = tiny

    def prefer_a(module, inputs, output):
        output[..., 3] = 1e4  # the id of A

    hook = model.lm_head.register_forward_hook(prefer_a)
    try:
        assert LLMJudge(model, tokenizer, max_new_tokens=1)(["q"], ["5"], ["five"]) == ["A"]
    finally:
        hook.remove()


def test_chat_template_is_used_where_there_is_one(tiny):
    model, tokenizer = tiny
    seen = []
    tokenizer.chat_template = "{% for m in messages %}{{ m['role'] }} B {{ m['content'] }}{% endfor %}{% if add_generation_prompt %} C{% endif %}"
    original = type(tokenizer).__call__
    try:
        type(tokenizer).__call__ = lambda self, text, **options: seen.append(text) or original(self, text, **options)
        LLMJudge(model, tokenizer, max_new_tokens=1)(["q"], ["5"], ["five"])
    finally:
        type(tokenizer).__call__ = original
        tokenizer.chat_template = None
    assert seen[0].startswith("user B You grade") and seen[0].endswith(" C")
