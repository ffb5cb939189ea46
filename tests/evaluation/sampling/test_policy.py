"""Prompts, end tokens and weights: chat and plain, models and adapters."""

import shutil

import pytest
import torch
from datasets import Dataset
from peft import LoraConfig, get_peft_model
from tokenizers.processors import TemplateProcessing
from toys import TOY_SETTINGS, build_byte_model, build_byte_tokenizer, content_reward
from transformers import GenerationConfig
from trl import GRPOConfig, GRPOTrainer

from stapo_trl.arithmetic.warm_start import build_model, build_tokenizer
from stapo_trl.evaluation import SamplingSettings, TransformersSampler
from stapo_trl.evaluation.samples import Problem, Request
from stapo_trl.evaluation.sampling.policy import (
    base_of,
    end_tokens,
    fingerprint,
    load_policy,
    read_prompt,
    read_response,
)
from stapo_trl.rewards import final_answer


CHAT = [{"role": "system", "content": "1"}, {"role": "user", "content": "2+3"}]


def test_a_chat_goes_through_the_template_once(tokenizer):
    tokenizer.chat_template = (
        "{% for message in messages %}so {{ message['content'] }}{% endfor %}"
        "{% if add_generation_prompt %}then {% endif %}"
    )
    assert tokenizer.decode(read_prompt(tokenizer, CHAT)) == "so 1so 2+3then "


def test_a_content_list_is_asked_as_its_text(tokenizer):
    parts = [message | {"content": [{"type": "text", "text": message["content"]}]} for message in CHAT]
    assert read_prompt(tokenizer, parts) == read_prompt(tokenizer, CHAT)
    tokenizer.chat_template = "{{ messages[-1]['content'] }}"
    assert tokenizer.decode(read_prompt(tokenizer, parts)) == "2+3"


def test_what_a_template_refuses_is_shown(tokenizer):
    tokenizer.chat_template = "{{ raise_exception('System role not supported') }}"
    with pytest.raises(ValueError, match="refuses the prompt .*'system'.*: System role not supported"):
        read_prompt(tokenizer, CHAT)


def test_the_first_token_of_a_chat_is_the_templates_not_doubled(tokenizer):
    tokenizer._tokenizer.post_processor = TemplateProcessing("<eos> $A", special_tokens=[("<eos>", 1)])
    tokenizer.chat_template = "<eos>{{ messages[-1]['content'] }}"
    assert read_prompt(tokenizer, CHAT) == read_prompt(tokenizer, "2+3")
    assert read_prompt(tokenizer, CHAT).count(1) == 1


def test_without_a_template_messages_are_joined():
    texts = []

    class Recorder:
        chat_template = None

        def __call__(self, text, **options):
            texts.append((text, options))
            return {"input_ids": [1]}

    assert read_prompt(Recorder(), CHAT) == [1] and texts == [("1\n\n2+3\n", {})]


def test_plain_text_stays_as_it_is_also_with_a_template(tokenizer):
    tokenizer.chat_template = "{{ raise_exception('no chat') }}"
    assert tokenizer.decode(read_prompt(tokenizer, "2+3=?")) == "2+3=?"


def test_every_declared_end_token_counts(tokenizer):
    class Config:
        eos_token_id = [7, 8]

    assert end_tokens(tokenizer, Config, GenerationConfig(eos_token_id=9), None) == {1, 7, 8, 9}
    tokenizer.eos_token = None
    with pytest.raises(ValueError, match="end token"):
        end_tokens(tokenizer, GenerationConfig())


def sample_texts(model, n=4, **options):
    sampler = TransformersSampler(model, **options)
    requests = [Request(Problem("a", "p", "2+3=?", "5"), number) for number in range(n)]
    samples = [s for part in sampler.sample(requests, SamplingSettings(1.0, 1.0, 20)) for s in part]
    return [sample.text for sample in sorted(samples, key=lambda sample: sample.number)]


def test_samples_of_a_problem_differ_and_do_not_depend_on_what_else_is_asked(saved):
    texts = sample_texts(saved, n=6)
    assert len(set(texts)) == 6
    assert sample_texts(saved, n=3, batch_size=1) == texts[:3]


def test_the_models_own_generation_defaults_change_nothing(saved, tokenizer):
    plain = sample_texts(saved)
    GenerationConfig(
        do_sample=True, temperature=0.01, top_k=1, top_p=0.1, repetition_penalty=1.5, max_length=5, eos_token_id=1
    ).save_pretrained(saved)
    assert sample_texts(saved) == plain


def test_an_end_token_of_the_generation_config_stops(saved):
    texts = sample_texts(saved)
    GenerationConfig(eos_token_id=list(range(1, 25)), pad_token_id=0).save_pretrained(saved)
    assert [len(text) for text in sample_texts(saved)] < [len(text) for text in texts]
    sampler = TransformersSampler(saved)
    (samples,) = sampler.sample([Request(Problem("a", "p", "2+3=?", "5"), 0)], SamplingSettings(1.0, 1.0, 20))
    assert samples[0].num_tokens == 1 and not samples[0].truncated


@pytest.fixture
def adapter(saved, tmp_path):
    """An adapter that changes its base much, as the trainer saves it, and the policy that it makes."""
    model, _ = load_policy(saved)
    torch.manual_seed(1)
    policy = get_peft_model(model, LoraConfig(r=4, target_modules=["q_proj", "v_proj", "down_proj"]))
    for name, parameter in policy.named_parameters():
        if "lora_B" in name:
            parameter.data.normal_(std=1.0)
    folder = tmp_path / "adapter"
    policy.save_pretrained(folder)
    return str(folder), policy


def test_an_adapter_is_evaluated_on_its_base_with_and_without_a_tokenizer(adapter, saved):
    folder, policy = adapter
    assert base_of(folder) == saved and base_of(saved) is None
    expected = sample_texts(policy, tokenizer=build_tokenizer())
    assert sample_texts(folder) == expected != sample_texts(saved)
    build_tokenizer().save_pretrained(folder)
    assert sample_texts(folder) == expected


def test_the_fingerprint_knows_other_weights_and_other_copies(saved, tmp_path):
    first = fingerprint(saved)
    shutil.copytree(saved, tmp_path / "copy")
    assert fingerprint(str(tmp_path / "copy")) == first
    model = build_model()
    model.model.layers[0].mlp.up_proj.weight.data[0, 0] += 1
    model.save_pretrained(saved)
    assert fingerprint(saved) != first


def test_no_model_is_refused_with_a_sentence(tmp_path):
    with pytest.raises(ValueError, match="neither a folder with config.json"):
        fingerprint(str(tmp_path))
    with pytest.raises(ValueError, match="'no/such-model' is neither"):
        fingerprint("no/such-model")
    with pytest.raises(ValueError, match="needs its `tokenizer`"):
        TransformersSampler(build_model())


@pytest.fixture
def thinking(tmp_path):
    """A folder with an untrained model that has a published chat template, under its name."""

    def save(template, special=()):
        tokenizer = build_byte_tokenizer(template, special)
        build_byte_model(tokenizer).save_pretrained(tmp_path / template)
        tokenizer.save_pretrained(tmp_path / template)
        return str(tmp_path / template)

    return save


def test_prompts_are_rendered_as_grpo_trainer_renders_them(thinking, tmp_path):
    for options in (None, {"enable_thinking": False}, {"enable_thinking": True}):
        tokenizer = build_byte_tokenizer("qwen3_5_think")
        trainer = GRPOTrainer(
            model=build_byte_model(tokenizer),
            reward_funcs=content_reward,
            args=GRPOConfig(str(tmp_path / "run"), **TOY_SETTINGS, chat_template_kwargs=options),
            train_dataset=Dataset.from_list([{"prompt": CHAT}] * 8),
            processing_class=tokenizer,
        )
        (expected,) = trainer._tokenize_prompts([CHAT])[0]
        assert read_prompt(tokenizer, CHAT, options) == expected, options


def test_a_sample_begins_with_the_tag_that_its_prompt_ends_with(thinking):
    requests = [Request(Problem("a", "p", CHAT, "5"), number) for number in range(2)]
    cases = [
        ("qwen3_5_think", None, True),
        ("qwen3_5_think", {"enable_thinking": False}, False),
        ("qwen3", None, False),
    ]
    for template, options, opens in cases:
        sampler = TransformersSampler(thinking(template), chat_template_kwargs=options)
        texts = [sample.text for part in sampler.sample(requests, SamplingSettings(1.0, 1.0, 4)) for sample in part]
        assert len(texts) == 2 and [text.startswith("<think>\n") for text in texts] == [opens] * 2


def test_thoughts_between_special_tokens_are_seen():
    tokenizer = build_byte_tokenizer("gemma4", ("<|channel>", "<channel|>", "<turn|>"))
    ids = tokenizer("<|channel>thought\n4?<channel|>5<turn|><eos>")["input_ids"]
    assert final_answer(read_response(tokenizer, [2], ids)) is None
    assert read_response(tokenizer, [2], ids) == "<|channel>thought\n4?<channel|>5<turn|>"
    assert read_response(build_byte_tokenizer(), tokenizer("a <think>")["input_ids"], tokenizer("5")["input_ids"]) == (
        "<think>5"
    )


def test_a_variable_that_no_chat_template_uses_is_refused(thinking, saved):
    cases = [
        (thinking("qwen3"), "sets 'enable_thinkin', but the chat template does not use it"),
        (saved, "sets 'enable_thinkin', but the tokenizer has no chat template"),
    ]
    for model, message in cases:
        sampler = TransformersSampler(model, chat_template_kwargs={"enable_thinkin": False})
        with pytest.raises(ValueError, match=message):
            next(sampler.sample([Request(Problem("a", "p", CHAT, "5"), 0)], SamplingSettings(1.0, 1.0, 4)))
