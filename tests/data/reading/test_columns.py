"""Problem and gold are found under the names in use, flat and nested."""

import pytest
from datasets import ClassLabel, Features, Value

from stapo_trl.data.reading.columns import Columns, find_columns, value_at


def test_known_shapes():
    cases = [
        ({"problem": "p", "level": "1", "type": "t", "solution": "s"}, ("problem",), ("solution",)),
        ({"question": "p", "answer": "a"}, ("question",), ("answer",)),
        ({"ID": "1", "Problem": "p", "Solution": "s", "Answer": 1}, ("Problem",), ("Answer",)),
        ({"prompt": "p", "target": "a", "ability": "MATH"}, ("prompt",), ("target",)),
        ({"prompt": "p", "label": "a"}, ("prompt",), ("label",)),
        ({"input": "p", "final_answer": ["a"]}, ("input",), ("final_answer",)),
        ({"problem": "p", "Ground Truth": "a"}, ("problem",), ("Ground Truth",)),
        ({"question": "p", "expected-answer": "a"}, ("question",), ("expected-answer",)),
        (
            {"prompt": [{"role": "user", "content": "p"}], "reward_model": {"ground_truth": "a", "style": "rule"}},
            ("prompt",),
            ("reward_model", "ground_truth"),
        ),
        (
            {"prompt": [], "reward_model": {"ground_truth": "a"}, "extra_info": {"raw_problem": "p"}},
            ("extra_info", "raw_problem"),
            ("reward_model", "ground_truth"),
        ),
        ({"question": "p", "reward_model.ground_truth": "a"}, ("question",), ("reward_model.ground_truth",)),
        ({"messages": [], "answer": "a"}, ("messages",), ("answer",)),
    ]
    found = [find_columns({}, row) for row, _, _ in cases]
    assert [(columns.problem, columns.gold) for columns in found] == [(problem, gold) for _, problem, gold in cases]


def test_the_worked_solution_is_kept_behind_the_answer():
    row = {"problem": "p", "solution": "s", "answer": "a"}
    assert find_columns({}, row) == Columns(("problem",), ("answer",), ("solution",))


def test_nested_columns_are_found_where_the_first_row_lacks_them():
    features = Features(prompt=Value("string"), reward_model={"ground_truth": Value("string")})
    found = find_columns(features, {"prompt": "p", "reward_model": None})
    assert found.gold == ("reward_model", "ground_truth")


def test_a_class_label_is_no_gold():
    features = Features(problem=Value("string"), label=ClassLabel(names=["bad", "good"]))
    with pytest.raises(ValueError, match="No column holds the solution"):
        find_columns(features, {"problem": "p", "label": 1})


def test_a_path_may_lead_into_json_that_is_stored_as_text():
    assert value_at({"reward_model": '{"ground_truth": "025"}'}, ("reward_model", "ground_truth")) == "025"


def test_names_given_by_the_user_win():
    row = {"problem": "p", "text": "t", "info": {"result": 1}, "solution": "s"}
    found = find_columns({}, row, {"problem": "text", "solution": "info.result"})
    assert found == Columns(("text",), ("info", "result"))


def test_unknown_shapes_show_what_was_seen_and_what_is_wanted():
    with pytest.raises(ValueError, match=r"problem: seen are \['text', 'meta', 'meta.gold'\], wanted is one of .*'qu"):
        find_columns({}, {"text": "t", "meta": {"gold": 1}})
    with pytest.raises(ValueError, match=r"solution: seen are \['question'\].*'final_answer'.*columns={'solution'"):
        find_columns({}, {"question": "t"})
    with pytest.raises(ValueError, match="There is no column 'txt': seen are"):
        find_columns({}, {"text": "t"}, {"problem": "txt"})
    with pytest.raises(ValueError, match="`columns` maps 'problem' and 'solution'"):
        find_columns({}, {"text": "t"}, {"prompt": "text"})
