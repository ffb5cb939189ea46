"""A reward judges prompt and completion together, as the policy read the one and wrote the other."""

import time

import pytest
from datasets import Dataset
from toys import CHAT_TEMPLATES, TOY_SETTINGS, build_byte_model, build_byte_tokenizer
from trl import GRPOConfig, GRPOTrainer
from trl.chat_template_utils import add_response_schema

from stapo_trl import STAPOConfig, STAPOTrainer
from stapo_trl.rewards import (
    boxed_format_reward,
    final_answer,
    math_accuracy_reward,
    strict_math_accuracy_reward,
    think_format_reward,
)
from stapo_trl.rewards.completion import render_chat
from stapo_trl.rewards.verifier.text.thinking import find_open_tag


pytestmark = pytest.mark.usefixtures("shared_workers")
REWARDS = [math_accuracy_reward, strict_math_accuracy_reward, boxed_format_reward, think_format_reward]
CHAT = [{"role": "user", "content": "2+2=?"}]
UNFINISHED = r"I get \boxed{4}. But wait, let me"
FINISHED = "I get 5. But wait.\n</think>\n\nSo \\boxed{4}."
WHOLE = f"<think>\n{FINISHED}"
BARE = r"So \boxed{4}."
# What math_accuracy, its strict form, boxed_format and think_format pay
NOTHING, ANSWER, ALL = (-1, -1, 0, 0), (1, 1, 1, 0), (1, 1, 1, 1)


def test_the_prompts_of_published_templates_end_in_a_thought_or_not():
    always, if_enabled = {"deepseek_r1_distill", "deepseekv3"}, {"qwen3_5_nothink"}
    unless_disabled = {f"nemotron_3_{name}" for name in ("5_lightning", "nano", "super", "ultra")}
    unless_disabled |= {"qwen3_5_think", "qwen3_6", "qwen3_8"}
    names = {file.stem for file in CHAT_TEMPLATES.glob("*.jinja") if not file.stem.endswith("_training")}
    assert always | if_enabled | unless_disabled < names
    wrong = []
    for name in names:
        tokenizer = build_byte_tokenizer(name)
        for options in ({}, {"enable_thinking": True}, {"enable_thinking": False}):
            enabled = options.get("enable_thinking", name not in if_enabled)
            opens = name in always or enabled and name in if_enabled | unless_disabled
            if find_open_tag(render_chat(tokenizer, CHAT, **options)) != ("<think>\n" if opens else ""):
                wrong.append((name, options))
    assert not wrong


def test_only_a_prompt_that_ends_with_the_tag_opens_a_thought():
    cases = {
        "Assistant: Let me solve this step by step.\n<think>": "<think>",
        "<|Assistant|><think>\n": "<think>\n",
        "assistant\n<seed:think>": "<seed:think>",
        "[/INST][THINK]": "[THINK]",
        "<|start|>assistant<|channel|>analysis<|message|>": "<|channel|>analysis<|message|>",
        "<|channel>thought\n": "<|channel>thought\n",
        "Reason between <think> and </think>, then answer. 2+2=?": "",
        "What does <think> mean?": "",
        "<think>\n\n</think>\n\n": "",
        "<think></think>": "",
        "": "",
    }
    assert {prompt: find_open_tag(prompt) for prompt in cases} == cases


def test_a_plain_prompt_tells_by_its_text():
    cases = [
        ("2+2=?\n<think>\n", UNFINISHED, NOTHING),
        ("2+2=?\n<think>\n", FINISHED, ALL),
        ("2+2=?\n<think>\n", r"</think>\boxed{4}", ANSWER),  # no thoughts
        ("2+2=?\n<think>\n\n</think>\n\n", UNFINISHED, ANSWER),
        ("2+2=?\n<think>\n\n</think>\n\n", FINISHED, ANSWER),  # the tag is nobody's
        ("2+2=?\n<seed:think>", UNFINISHED, NOTHING),
        ("2+2=?\n<seed:think>", r"Hm.</seed:think>\boxed{4}", ALL),
        ("2+2=?", WHOLE, ALL),
        ("2+2=?", BARE, ANSWER),
    ]
    prompts, completions, paid = zip(*cases, strict=True)
    golds = ["4"] * len(cases)
    found = zip(*(reward(list(completions), prompts=list(prompts), solution=golds) for reward in REWARDS), strict=True)
    assert list(found) == list(paid)


def calculate(trainer_class, tokenizer, completions, tmp_path, options=None, prompt=CHAT):
    """What the trainer's reward functions pay for completions of one prompt, which it decodes itself."""
    config_class = STAPOConfig if trainer_class is STAPOTrainer else GRPOConfig
    rows = [{"prompt": prompt, "solution": "4"}] * 8
    trainer = trainer_class(
        model=build_byte_model(tokenizer),
        reward_funcs=REWARDS,
        args=config_class(str(tmp_path), **TOY_SETTINGS, chat_template_kwargs=options or {}),
        train_dataset=Dataset.from_list(rows),
        processing_class=tokenizer,
    )
    ids = [tokenizer(text + tokenizer.eos_token)["input_ids"] for text in completions]
    trainer._generate_single_turn = lambda *arguments: (ids, None)
    paid = []
    trainer._calculate_rewards = lambda *arguments: paid.append(type(trainer)._calculate_rewards(trainer, *arguments))
    with pytest.raises(TypeError):  # it stops behind the rewards
        trainer._generate_and_score_completions(rows[: len(ids)])
    return [tuple(row) for row in paid[0].tolist()]


GEMMA = ("<|channel>", "<channel|>", "<|turn>", "<turn|>")
MAGISTRAL = ("[THINK]", "[/THINK]", "[INST]", "[/INST]")
TRAINED = [
    # template, its variables, special tokens, completion, what is paid
    ("deepseek_r1_distill", {}, (), UNFINISHED, NOTHING),
    ("deepseek_r1_distill", {}, (), FINISHED, ALL),
    ("deepseek_r1_distill", {}, (), WHOLE, (1, 1, 1, 0)),  # two opening tags
    ("qwen3", {}, (), WHOLE, ALL),
    ("qwen3", {}, (), BARE, ANSWER),
    ("qwen3", {}, (), FINISHED, ANSWER),
    ("qwen3", {}, (), "<think>" + UNFINISHED, NOTHING),
    ("qwen3", {"enable_thinking": False}, (), UNFINISHED, ANSWER),
    ("qwen3_5_think", {}, (), UNFINISHED, NOTHING),
    ("qwen3_5_think", {}, (), FINISHED, ALL),
    ("qwen3_5_think", {"enable_thinking": False}, (), UNFINISHED, ANSWER),
    ("qwen3_5_nothink", {}, (), UNFINISHED, ANSWER),
    ("qwen3_5_nothink", {"enable_thinking": True}, (), UNFINISHED, NOTHING),
    ("gemma4", {}, GEMMA, r"<|channel>thought|Hm.<channel|>\boxed{4}".replace("|H", "\nH"), ALL),
    ("gemma4", {}, GEMMA, "<|channel>thought\n" + UNFINISHED, NOTHING),
    ("gemma4", {}, GEMMA, BARE, ANSWER),
    ("[INST]{{ messages[0]['content'] }}[/INST]", {}, MAGISTRAL, r"[THINK]Hm.[/THINK]\boxed{4}", ALL),
    ("[INST]{{ messages[0]['content'] }}[/INST]", {}, MAGISTRAL, "[THINK]" + UNFINISHED, NOTHING),
    ("[INST]{{ messages[0]['content'] }}[/INST][THINK]", {}, MAGISTRAL, UNFINISHED, NOTHING),
    ("[INST]{{ messages[0]['content'] }}[/INST][THINK]", {}, MAGISTRAL, r"Hm.[/THINK]\boxed{4}", ALL),
]


@pytest.mark.parametrize("trainer_class", [GRPOTrainer, STAPOTrainer])
def test_in_a_trainer_the_chat_template_tells(trainer_class, tmp_path):
    groups = {}
    for template, options, special, completion, paid in TRAINED:
        groups.setdefault((template, tuple(options.items()), special), []).append((completion, paid))
    wrong = []
    for (template, options, special), cases in groups.items():
        tokenizer = build_byte_tokenizer(None if "[" in template else template, special)
        tokenizer.chat_template = tokenizer.chat_template or template
        completions, expected = zip(*(cases * 4)[:4], strict=True)
        found = calculate(trainer_class, tokenizer, completions, tmp_path, dict(options))
        wrong += [(template, *case) for case in zip(completions, expected, found, strict=True) if case[1] != case[2]]
    assert not wrong


def test_completions_that_the_tokenizer_parses_are_judged_alike(tmp_path):
    tokenizer = add_response_schema(build_byte_tokenizer("qwen3_5_think"))
    cases = {UNFINISHED: NOTHING, FINISHED: ALL, r"</think>\boxed{4}": ANSWER, WHOLE: (1, 1, 1, 0)}
    assert calculate(GRPOTrainer, tokenizer, cases, tmp_path) == list(cases.values())


def test_a_plain_prompt_in_a_trainer(tmp_path):
    found = calculate(
        GRPOTrainer, build_byte_tokenizer(), [UNFINISHED, FINISHED] * 2, tmp_path, prompt="2+2=? <think>"
    )
    assert found == [NOTHING, ALL] * 2


def test_where_a_turn_and_its_thoughts_end():
    cases = {
        "\\boxed{5}<|im_end|>\n<|im_start|>user\n\\boxed{6}": "5",
        "<|im_start|>assistant\n\\boxed{5}<|im_end|>": "5",
        "<|im_end|>\\boxed{5}": None,
        "<think>\\boxed{5}<|im_end|>\n<|im_start|>assistant\n</think>\\boxed{6}": None,
        "\\boxed{5}</s> \\boxed{6}": "5",
        "Not <s>\\boxed{4}</s> but \\boxed{5}": "5",  # struck out, in HTML
        "\\boxed{5}<end_of_turn>\n<start_of_turn>user\n\\boxed{6}": "5",
        "\\boxed{5}<|eot_id|><|start_header_id|>user<|end_header_id|>\\boxed{6}": "5",
        "\\boxed{5}<｜end▁of▁sentence｜><｜User｜>\\boxed{6}": "5",
        "Answer: 5<|endoftext|>Human: Answer: 6": "5",
        "[THINK]\\boxed{5}": None,
        "[THINK]\\boxed{5}[/THINK]\\boxed{6}": "6",
        "<seed:think>\\boxed{5}": None,
        "<seed:think>\\boxed{5}</seed:think>\\boxed{6}": "6",
        "◁think▷\\boxed{5}": None,
        "◁think▷\\boxed{5}◁/think▷\\boxed{6}": "6",
        "<|START_THINKING|>\\boxed{5}": None,
        "<|think_start|>\\boxed{5}": None,
        "<|think|>\\boxed{5}<|/think|>\\boxed{6}": "6",
        "\\boxed{5}<|EOT|>\\boxed{6}": "5",
        "<|START_THINKING|>x<|END_THINKING|><|START_RESPONSE|>Answer: 6<|END_RESPONSE|>": "6",
        "<|channel|>analysis<|message|>\\boxed{5}": None,
        "<|channel|>analysis<|message|>\\boxed{5}<|end|><|start|>assistant": None,
        "<|channel|>analysis<|message|>5<|end|><|start|>assistant<|channel|>final<|message|>\\boxed{6}<|return|>": "6",
        "<|channel>thought\n\\boxed{5}": None,
        "<|channel>thought\n\\boxed{5}<channel|>\\boxed{6}<turn|>": "6",
        "\\boxed{6}<|end|>\n<|user|>\\boxed{7}": "6",
        "Think of [0, 1) and x<y. Answer: 6": "6",
    }
    assert {response: final_answer(response) for response in cases} == cases


def test_markers_are_found_in_linear_time():
    for marker in (
        "<",
        "<think>",
        "</think>",
        "<|channel|>analysis",
        "<|im_start|>assistant",
        "[THINK]",
        "<seed:",
        "</s>",
    ):
        for text in (marker * 20_000, marker + " " * 100_000, (marker + " \n") * 20_000):
            start = time.process_time()
            final_answer(text), find_open_tag(text)
            assert time.process_time() - start < 1, (marker, len(text))


def test_every_completion_needs_its_prompt():
    with pytest.raises(ValueError, match="Got 2 completions and 1 prompts: pass one prompt per completion"):
        think_format_reward(["a", "b"], prompts=["2+2=?"])
