import pytest

from stapo_trl.rewards import boxed_format_reward, think_format_reward


def check(reward, cases):
    chats = [[{"role": "assistant", "content": text}] for text in cases]
    assert dict(zip(cases, reward(list(cases)), strict=True)) == cases
    assert reward(chats) == reward(list(cases))


def test_box_counts_if_it_is_last_closed_and_filled():
    cases = {
        r"So \boxed{5}.": 1.0,
        r"<think>hm</think>\boxed{5}": 1.0,
        r"<think>\boxed{5}</think>5": 0.0,
        r"<think>\boxed{5}": 0.0,
        r"\boxed{}": 0.0,
        r"\boxed{5} or \boxed{6": 0.0,
        "Answer: 5": 0.0,
    }
    check(boxed_format_reward, cases)


def test_thoughts_and_answer_must_both_say_something():
    cases = {
        "<think>2+3</think>5": 1.0,
        "<think>\n2+3\n</think>\n\n5\n": 1.0,
        "\n<think>2+3</think>5": 1.0,
        "<think></think>a": 0.0,
        "<think> \n </think>a": 0.0,
        "<think>2+3</think>": 0.0,
        "<think>2+3</think> \n": 0.0,
        "<think>2+3": 0.0,
        "2+3</think>5": 0.0,
        "a<think>2+3</think>5": 0.0,
        "<think>a<think>b</think>5": 0.0,
        "<think>a</think>b<think>c</think>5": 0.0,
        "<think>a</think>b</think>c": 0.0,
        "5": 0.0,
        "": 0.0,
    }
    check(think_format_reward, cases)


def test_trl_still_pays_for_an_empty_thought():
    # The reason for our own function; once this fails, TRL's can be re-exported.
    trl_reward = pytest.importorskip("trl.rewards").think_format_reward
    assert trl_reward([[{"content": "<think></think>a"}]]) == [1.0]
