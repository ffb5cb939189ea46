import random
import re

import pytest

from stapo_trl.arithmetic.problems import LARGEST_RESULT, LARGEST_TERM, load_arithmetic, work_out, write_answer
from stapo_trl.arithmetic.warm_start import build_tokenizer
from stapo_trl.rewards import math_accuracy_reward


def test_steps_and_answer_of_a_chain_made_by_hand():
    assert work_out("12+7-3=?") == [(12, "+7", 19), (19, "-3", 16)]
    assert write_answer("12+7-3+13-9=?") == "12+7=19;19-3=16;16+13=29;29-9=20;\\boxed{20}"


def test_solutions_are_what_python_computes():
    for row in load_arithmetic("train", 200):
        assert eval(row["prompt"].removesuffix("=?")) == int(row["solution"])
        assert all(0 <= after <= LARGEST_RESULT for _, _, after in work_out(row["prompt"]))
        assert all(int(term) <= LARGEST_TERM for term in re.findall(r"\d+", row["prompt"]))


def test_splits_are_disjoint_for_any_size_and_seed():
    prompts = {
        split: {p for seed in (0, 1) for p in load_arithmetic(split, 500, num_terms=3 + seed, seed=seed)["prompt"]}
        for split in ("train", "validation", "test")
    }
    assert not prompts["train"] & prompts["validation"] and not prompts["train"] & prompts["test"]
    assert not prompts["validation"] & prompts["test"]


def test_problems_are_distinct_and_repeat_with_the_seed():
    first = load_arithmetic("test", 300)["prompt"]
    assert len(set(first)) == 300
    assert list(first) == list(load_arithmetic("test", 300)["prompt"])
    assert list(first) != list(load_arithmetic("test", 300, seed=1)["prompt"])


def test_slips_change_the_text_but_never_the_final_answer():
    rng = random.Random(0)
    problems = load_arithmetic("train", 300)
    answers = [write_answer(prompt, rng, slip_rate=0.5) for prompt in problems["prompt"]]
    clean = [write_answer(prompt) for prompt in problems["prompt"]]
    assert sum(a != b for a, b in zip(answers, clean, strict=True)) > 200
    assert math_accuracy_reward(answers, solution=list(problems["solution"])) == [1.0] * 300


def test_the_tokenizer_spells_every_answer():
    tokenizer, rng = build_tokenizer(), random.Random(1)
    for prompt in load_arithmetic("train", 200)["prompt"]:
        text = prompt + write_answer(prompt, rng, slip_rate=0.5)
        ids = tokenizer(text)["input_ids"]
        assert tokenizer.pad_token_id not in ids and tokenizer.decode(ids) == text


def test_more_problems_than_there_are_are_refused_at_once():
    with pytest.raises(ValueError, match="Found only .* of 500 distinct problems of 2 terms"):
        load_arithmetic("test", 500, num_terms=2)


def test_unknown_splits_and_single_numbers_are_refused():
    with pytest.raises(ValueError, match="`split` must be one of"):
        load_arithmetic("dev")
    with pytest.raises(ValueError, match="`num_terms` must be at least 2, got 1"):
        load_arithmetic(num_terms=1)
