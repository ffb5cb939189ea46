"""Generated tasks, and rewards by their own scorers: full marks only, and nothing in an answer runs."""

import json
import pickle

import pytest


reasoning_gym = pytest.importorskip("reasoning_gym", reason="the extra 'gym' is not installed")

from stapo_trl.data import load_reasoning_gym  # noqa: E402
from stapo_trl.rewards import reasoning_gym_reward  # noqa: E402
from stapo_trl.rewards.reasoning_gym import is_harmless  # noqa: E402
from stapo_trl.trainer import preflight  # noqa: E402


# Metadata with tuples, integer keys, nested lists, fractions; answers of several lines, and none
TASKS = ("chain_sum", "sudoku", "knights_knaves", "gsm_symbolic", "letter_counting", "n_queens", "simple_integration")


def test_own_answers_get_full_marks():
    for task in TASKS:
        problems = load_reasoning_gym(task, size=4)
        assert len(problems) == 4 and {"question", "answer", "metadata"} == set(json.loads(problems["entry"][0]))
        answers = [[{"role": "assistant", "content": f"So \\boxed{{{answer}}}."}] for answer in problems["solution"]]
        preflight.check_reward_columns(problems, reasoning_gym_reward)
        assert reasoning_gym_reward(answers, entry=problems["entry"][:]) == [1.0] * 4, task


def test_partial_credit_is_no_credit_and_the_answer_is_extracted_first():
    row = load_reasoning_gym("chain_sum", size=1, seed=3, prompt_format="plain", instruction=None)[0]
    entry, gold = json.loads(row["entry"]), row["solution"]
    assert row["prompt"] == entry["question"] and row["problem_id"] == "chain_sum-3-0"
    scorer = reasoning_gym.get_score_answer_fn("chain_sum")
    assert 0 < scorer(answer=f"the answer is {gold}", entry=entry) < 1
    responses = [f"The answer is {gold}.", f"<think>{gold}</think> I do not know.", f"\\boxed{{{gold}0}}", ""]
    assert reasoning_gym_reward(responses, entry=[row["entry"]] * 4) == [1.0, -1.0, -1.0, -1.0]


def test_rows_of_another_set_are_passed_over_and_other_entries_refused():
    entry = load_reasoning_gym("chain_sum", size=1)[0]["entry"]
    gold = json.loads(entry)["answer"]
    assert reasoning_gym_reward([f"\\boxed{{{gold}}}"] * 2, entry=[None, entry]) == [None, 1.0]
    for entries in ([json.loads(entry)] * 2, [entry]):
        with pytest.raises(ValueError, match="`entry` is the column of JSON texts"):
            reasoning_gym_reward(["", ""], entry=entries)


def test_a_task_without_an_answer_of_its_own_is_scored():
    row = load_reasoning_gym("graph_color", size=1)[0]
    assert row["solution"] == "" and json.loads(row["entry"])["metadata"]["possible_answer"]
    coloring = json.dumps(json.loads(row["entry"])["metadata"]["possible_answer"])
    assert reasoning_gym_reward([f"\\boxed{{{coloring}}}", r"\boxed{{}}"], entry=[row["entry"]] * 2) == [1.0, -1.0]


def test_a_task_that_json_cannot_hold_is_refused():
    with pytest.raises(ValueError, match="arc_agi: 2 generated, 0 repeated, 2 not accepted .* choose another task"):
        load_reasoning_gym("arc_agi", size=2)


def test_repeated_questions_are_left_out_and_counted(caplog):
    problems = load_reasoning_gym("chain_sum", size=200, min_terms=2, max_terms=2, min_digits=1, max_digits=1)
    prompts = [prompt[0]["content"] for prompt in problems["prompt"]]
    assert len(set(prompts)) == len(prompts) < 200 and f"{200 - len(prompts)} repeated" in caplog.text


def test_the_same_seed_gives_the_same_problems():
    assert list(load_reasoning_gym("chain_sum", 5, seed=1)) == list(load_reasoning_gym("chain_sum", 5, seed=1))
    assert list(load_reasoning_gym("chain_sum", 5, seed=1)) != list(load_reasoning_gym("chain_sum", 5, seed=2))


def test_unknown_tasks_are_refused_with_the_known_ones():
    with pytest.raises(ValueError, match="no task 'chainsum' in reasoning-gym, only .*'chain_sum'"):
        load_reasoning_gym("chainsum")


HOSTILE = [
    "open('{file}', 'w')",
    "open\n('{file}', 'w')",
    "(open)('{file}', 'w')",
    "[open][0]('{file}', 'w')",
    "(open#\n('{file}', 'w'))",
    "open\\\n('{file}', 'w')",
    "ｏｐｅｎ('{file}', 'w')",
    "__import__('os').mknod('{file}')",
    "sin(\"open('{file}', 'w')\")",
    "sin(\"op\" + \"en('{file}', 'w')\")",
    "[sin(*exp) for sin in [open] for exp in [['{file}', 'w']]]",
    "(sin:=open, sin('{file}', 'w'))",
    "5! + open('{file}', 'w')",
    "f\"{{open('{file}', 'w')}}\"",
]


def test_nothing_in_an_answer_runs(tmp_path):
    answers = [text.format(file=tmp_path / "made") for text in HOSTILE]
    assert not any(map(is_harmless, answers))
    responses = [f"<answer>{answer}</answer>" for answer in answers]
    for task in ("spiral_matrix", "puzzle24", "countdown", "polynomial_multiplication"):
        entry = load_reasoning_gym(task, size=1)["entry"]
        assert reasoning_gym_reward(responses, entry=list(entry) * len(answers)) == [-1.0] * len(HOSTILE)
        assert not (tmp_path / "made").exists(), task


def test_an_answer_that_never_ends_is_wrong():
    entry = load_reasoning_gym("puzzle24", size=1)["entry"][0]
    assert reasoning_gym_reward([r"\boxed{9**9**9**9}"], entry=[entry]) == [-1.0]


def test_the_reward_pickles():
    assert pickle.loads(pickle.dumps(reasoning_gym_reward)) is reasoning_gym_reward
