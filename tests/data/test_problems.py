"""Rows of any shape become distinct problems with usable golds, in order; what was left out is told."""

import json
import logging

import pytest
from datasets import Dataset, DatasetDict, Features, IterableDataset, List, Value

from stapo_trl import STAPOConfig
from stapo_trl.data import load_local, load_problems
from stapo_trl.data.prompt import BOXED_INSTRUCTION, PREFIXES, SUFFIXES, THINK_INSTRUCTION
from stapo_trl.rewards import math_accuracy_reward
from stapo_trl.trainer import preflight


def load(rows, **options):
    return load_problems(Dataset.from_list(rows), "made", **{"prompt_format": "plain", "instruction": None} | options)


def test_copies_are_dropped_in_order_and_counted(caplog):
    rows = [
        {"question": q, "answer": a} for q, a in [("b?", 1), ("a?", 2), ("b?", 1), (" b ?\n", 1), ("c?", 3), ("a?", 2)]
    ]
    with caplog.at_level(logging.INFO):
        problems = load(rows)
    assert problems["prompt"][:] == ["b?", "a?", "c?"] and problems["solution"][:] == ["1", "2", "3"]
    assert problems.info.description == "made: 6 rows, 3 copies of others, 3 problems"
    assert caplog.messages == [problems.info.description + "."]


def test_the_nested_shape_and_the_flat_one_give_the_same_rows():
    wrapped = f"{PREFIXES[0]}\n\nFind $x$.\n\n{SUFFIXES[0]}"
    nested = {
        "prompt": [{"content": wrapped, "role": "user"}],
        "reward_model": {"ground_truth": "034", "style": "rule"},
    }
    flat = {"prompt": "Find $x$.", "solution": "034", "source_prompt": [{"content": wrapped, "role": "user"}]}
    expected = [
        {
            "prompt": [{"role": "user", "content": "Find $x$.\n" + BOXED_INSTRUCTION}],
            "solution": "034",
            "problem_id": "made-" + problem_id("Find $x$."),
            "source": "made",
        }
    ]
    for row in (nested, flat):
        assert list(load([row] * 3, prompt_format="chat", instruction=BOXED_INSTRUCTION)) == expected
    # without an instruction of ours, the text stays as it is
    assert load([nested])["prompt"][0] == wrapped


def problem_id(problem):
    return load([{"problem": problem, "answer": 1}])["problem_id"][0].removeprefix("made-")


def test_the_id_of_a_problem_is_the_same_in_every_copy():
    assert problem_id("Let $x=1$.") == problem_id("Let $x = 1$.\n" + THINK_INSTRUCTION) != problem_id("Let $x=2$.")


BAD = [
    {"question": "a?", "answer": "1"},
    {"question": "b?", "answer": None},
    {"question": "c?", "answer": " "},
    {"question": "  ", "answer": "1"},
    {"question": "d?", "answer": r"\frac{"},
    {"question": None, "answer": "1"},
    {"question": "e?", "answer": "5"},
]


def test_unusable_rows_are_refused_by_their_numbers():
    with pytest.raises(
        ValueError, match=r"made: 7 rows, 5 unusable \(row 1: there is no gold answer; row 2: .*row 4: no"
    ):
        load(BAD)


def test_unusable_rows_are_dropped_and_counted_as_asked(caplog):
    problems = load(BAD, unusable="drop")
    assert problems["prompt"][:] == ["a?", "e?"]
    assert "7 rows, 5 unusable (row 1: there is no gold" in caplog.text and "2 problems" in caplog.text


def test_no_usable_row_at_all_is_an_error():
    with pytest.raises(ValueError, match="made has no usable row: 4 rows, 4 unusable"):
        load(BAD[1:5], unusable="drop")
    with pytest.raises(ValueError, match="made has no rows"):
        load_problems(Dataset.from_dict({"question": [], "answer": []}), "made")


def test_copies_with_different_golds_are_reported_and_left_out():
    rows = [
        {"question": q, "answer": a} for q, a in [("a?", "5"), ("b?", "7"), ("a ?", "6"), ("b?", "07"), ("b?", "7.0")]
    ]
    with pytest.raises(ValueError, match="row 0: copies of the problem have different golds, '5' and '6'"):
        load(rows)
    # 7, 07 and 7.0 are one answer
    assert load(rows, unusable="drop")["prompt"][:] == ["b?"]


def test_a_copy_with_a_gold_stands_in_for_one_without():
    rows = [{"question": "a?", "answer": None}, {"question": "a?", "answer": "5"}]
    assert load(rows, unusable="drop")["solution"][:] == ["5"]


def test_a_gold_that_the_verifier_does_not_accept_for_itself_is_reported(monkeypatch):
    from stapo_trl.data import problems
    from stapo_trl.rewards import Verdict

    calls = []

    def strange(responses, golds):
        calls.append(list(responses))
        return [Verdict("incorrect" if gold == "5" else "correct") for gold in golds]

    monkeypatch.setattr(problems, "grade", strange)
    rows = [{"question": f"{i}?", "answer": a} for i, a in enumerate(["4", "5", "4"])]
    with pytest.raises(ValueError, match="row 1: the gold '5' is not graded as equal to itself"):
        load(rows)
    assert sorted(calls[0]) == [r"\boxed{4}", r"\boxed{5}"]  # one batch, every gold once


def test_the_box_of_a_worked_solution_stands_in_for_an_empty_answer():
    rows = [
        {"problem": "a?", "answer": "", "solution": r"So $\boxed{10-2\sqrt{5}}$."},
        {"problem": "b?", "answer": "2", "solution": r"So $\boxed{3}$."},
        {"problem": "c?", "answer": None, "solution": "Clear."},
    ]
    assert load(rows, unusable="drop")["solution"][:] == [r"10-2\sqrt{5}", "2"]


def test_chats_keep_their_system_message_and_ask_one_question():
    system, user = {"role": "system", "content": "Be brief."}, {"role": "user", "content": "1+1?"}
    answered = [system, user, {"role": "assistant", "content": r"\boxed{2}"}]
    for prompt in ([system, user], answered):  # the answer in a chat never reaches the prompt
        problems = load([{"messages": prompt, "answer": "2"}], prompt_format="chat")
        assert problems[0]["prompt"] == [system, user]
    assert load([{"prompt": [system, user], "answer": "2"}])[0]["prompt"] == "Be brief.\n\n1+1?"
    # a system message that is nothing but a known instruction gives way to ours
    asked = [{"role": "system", "content": BOXED_INSTRUCTION}, user]
    problems = load([{"prompt": asked, "answer": "2"}], instruction=THINK_INSTRUCTION)
    assert problems[0]["prompt"] == "1+1?\n" + THINK_INSTRUCTION
    with pytest.raises(ValueError, match="row 0: the chat asks 2 questions"):
        load([{"prompt": [user, user], "answer": "2"}])


def test_the_format_of_the_rows_does_not_matter():
    rows = Dataset.from_list([{"question": "a?", "answer": 27.0}, {"question": "b?", "answer": 0.5}])
    expected = list(load_problems(rows, "made"))
    assert expected[0]["solution"] == "27"
    for format in ("numpy", "torch", "pandas", "arrow"):
        assert list(load_problems(rows.with_format(format), "made")) == expected, format


@pytest.mark.parametrize("streaming", [False, True])
def test_short_floats_keep_the_digits_they_were_written_with(streaming):
    for numbers in (Value("float32"), Value("float64")):
        for column, type, wrap in (
            ("answer", numbers, lambda value: value),
            ("final_answer", List(numbers), lambda value: [value]),
            ("reward_model", {"ground_truth": numbers}, lambda value: {"ground_truth": value}),
        ):
            features = Features({"question": Value("string"), column: type})
            columns = {"question": ["a?", "b?"], column: [wrap(27.0), wrap(0.1)]}
            rows = Dataset.from_dict(columns, features=features)
            problems = load_problems(rows.to_iterable_dataset() if streaming else rows, "made")
            assert [row["solution"] for row in problems] == ["27", "0.1"], (numbers, column)


def test_half_a_character_makes_a_row_unusable(tmp_path):
    file = tmp_path / "made.jsonl"
    file.write_text('{"question": "a\\ud800?", "answer": "1"}\n{"question": "b?", "answer": "2"}\n')
    with pytest.raises(ValueError, match="row 0: 'utf-8' codec can't encode character"):
        load_local(file)
    assert load_local(file, unusable="drop")["solution"][:] == ["2"]
    file.write_bytes('{"question": "é?", "answer": "1"}\n'.encode("latin-1"))
    with pytest.raises(ValueError, match="made.jsonl is not UTF-8"):
        load_local(file)


def test_a_csv_with_json_in_its_columns_is_opened(tmp_path):
    row = {
        "prompt": json.dumps([{"role": "user", "content": "a?"}]),
        "reward_model": json.dumps({"ground_truth": "025"}),
    }
    Dataset.from_list([row, row]).to_csv(tmp_path / "made.csv")
    problems = load_local(tmp_path / "made.csv", instruction=None)
    assert problems["prompt"][:] == [[{"role": "user", "content": "a?"}]] and problems["solution"][:] == ["025"]


@pytest.mark.parametrize("streaming", [False, True])
def test_mixed_types_of_golds_in_json_come_out_exactly(tmp_path, streaming):
    golds = ['"025"', "5", '["1", "2"]', "27.0", "NaN", '"2024-01-02"', "9007199254740993", "12345678901234567890123"]
    lines = [f'{{"question": "{index}?", "answer": {gold}}}' for index, gold in enumerate(golds)]
    expected = ["025", "5", "1, 2", "27", "2024-01-02", "9007199254740993", "12345678901234567890123"]
    for name, text in (("a_list", "[" + ",".join(lines) + "]"), ("lines", "\n".join(lines))):
        file = tmp_path / f"{name}.json"
        file.write_text(text)
        problems = load_local(file, unusable="drop", streaming=streaming)
        assert [row["solution"] for row in problems] == expected, name
        assert {row["source"] for row in problems} == {name}


def test_columns_that_the_first_rows_lack_are_found_and_shown(tmp_path):
    file = tmp_path / "made.jsonl"
    file.write_text('{"question": "a?"}\n{"question": "b?", "meta": {"result": "5"}}\n')
    with pytest.raises(ValueError, match=r"seen are \['question', 'meta'\], wanted"):
        load_local(file)
    file.write_text('{"text": "b?", "meta": {"result": "5"}}\n')
    columns = {"problem": "text", "solution": "meta.result"}
    assert load_local(file, columns=columns, prompt_format="plain", instruction=None)[0]["prompt"] == "b?"


def stream(rows, read):
    def generate():
        for row in rows:
            read.append(row)
            yield row

    return IterableDataset.from_generator(generate)


def test_streams_are_converted_row_by_row():
    read = []
    problems = load_problems(stream(BAD, read), "made", prompt_format="plain", instruction=None, unusable="drop")
    assert len(read) == 1  # the one that tells the columns
    assert problems.column_names == ["prompt", "solution", "problem_id", "source"]
    rows = iter(problems)
    assert next(rows)["prompt"] == "a?" and len(read) == 2
    assert [row["prompt"] for row in rows] == ["e?"]
    assert [row["prompt"] for row in problems] == ["a?", "e?"]  # again, for the next epoch


def test_a_stream_refuses_a_row_by_its_number_when_it_gets_there():
    rows = iter(load_problems(stream(BAD, []), "made"))
    next(rows)
    with pytest.raises(ValueError, match="made: row 1: there is no gold answer"):
        next(rows)


@pytest.mark.parametrize("make", [Dataset.from_list, lambda rows: stream(rows, [])])
def test_the_rows_train_with_the_accuracy_reward(make):
    problems = load_problems(make([{"question": f"{i}?", "answer": i} for i in range(8)]), "made")
    preflight.check_reward_columns(problems, math_accuracy_reward)
    preflight.check_dataset(problems, STAPOConfig("run", per_device_train_batch_size=8, use_cpu=True, bf16=False))
    golds = [row["solution"] for row in problems]
    assert math_accuracy_reward([rf"\boxed{{{gold}}}" for gold in golds], solution=golds) == [1.0] * 8


def test_settings_are_checked_before_any_row_is_read():
    with pytest.raises(ValueError, match="`prompt_format` must be one of"):
        load_problems(None, "made", prompt_format="text")
    with pytest.raises(ValueError, match="one split of a data set, got all of .'train'."):
        load_problems(DatasetDict(train=Dataset.from_list(BAD)), "made")
    with pytest.raises(ValueError, match="`unusable` must be 'raise' or 'drop', got 'keep'"):
        load_problems(None, "made", unusable="keep")


def test_a_chat_that_cannot_be_read_makes_its_row_unusable(tmp_path):
    messages = [
        ({"role": ["user"], "content": "a?"}, r"no role but \['user'\]"),
        ({"role": 1, "content": "a?"}, "no role but 1"),
        ({"role": "user", "content": 5}, "got .*5"),
        ({"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "What is shown?"}]}, "an image"),
    ]
    for number, (message, flaw) in enumerate(messages):
        rows = [{"prompt": [{"role": "user", "content": "b?"}], "answer": "1"}, {"prompt": [message], "answer": "2"}]
        file = tmp_path / f"made{number}.jsonl"
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
        with pytest.raises(ValueError, match=f"row 1: .*{flaw}"):
            load_local(file)
        assert load_local(file, unusable="drop")["solution"][:] == ["1"]
