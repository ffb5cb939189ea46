"""Multiple choice, stories and instructions in the shapes of the field: nothing of a problem is lost."""

import json

import pytest
from datasets import ClassLabel, Dataset, Features, List, Value

from stapo_trl.data import load_local, load_problems
from stapo_trl.data.reading.choices import Choices


HEAD = "\n\nAnswer with the letter of one of these choices:\n"
THREE = HEAD + "A. 1\nB. 2\nC. 4"


def load(rows, **options):
    return load_problems(rows, "made", **{"prompt_format": "plain", "instruction": None} | options)[0]


def test_the_shapes_of_published_sets():
    cases = {
        "MMLU": ({"question": "2+2?", "subject": "s", "choices": ["1", "2", "4"], "answer": 2}, THREE, "C"),
        "MMLU-Pro": (
            {"question": "2+2?", "options": ["1", "2", "4"], "answer": "C", "answer_index": 2, "cot_content": ""},
            THREE,
            "C",
        ),
        "ARC": (
            {"question": "2+2?", "choices": {"text": ["1", "2", "4"], "label": ["1", "2", "3"]}, "answerKey": "3"},
            THREE,
            "C",
        ),
        "AQuA": ({"question": "2+2?", "options": ["A)1", "B)2", "C)4"], "rationale": "r", "correct": "C"}, THREE, "C"),
        "MathQA": (
            {"Problem": "2+2?", "Rationale": "r", "options": "a ) 1 , b ) 2 , c ) 4", "correct": "c"},
            "\na ) 1 , b ) 2 , c ) 4",
            "c",
        ),
        "MedQA": ({"question": "2+2?", "options": {"A": "1", "B": "2", "C": "4"}, "answer": "4"}, THREE, "C"),
        "CommonsenseQA": (
            {
                "question": "2+2?",
                "choices": [{"label": "A", "text": "1"}, {"label": "B", "text": "4"}],
                "answerKey": "B",
            },
            HEAD + "A. 1\nB. 4",
            "B",
        ),
        "OpenBookQA": (
            {"question_stem": "2+2?", "choices": {"text": ["1", "2", "4"], "label": list("ABC")}, "answerKey": "C"},
            THREE,
            "C",
        ),
        "CMMLU": ({"Question": "2+2?", "A": "1", "B": "2", "C": "4", "Answer": "C"}, THREE, "C"),
        "AGIEval": (
            {"passage": None, "question": "2+2?", "options": ["(A)1", "(B)2", "(C)4"], "label": "C", "answer": None},
            THREE,
            "C",
        ),
        "numbers": ({"question": "2+2?", "choices": [1, 2, 4], "answer": 2}, THREE, "B"),
        "text": ({"question": "2+2?", "choices": ["one", "four"], "answer": "four"}, HEAD + "A. one\nB. four", "B"),
        "worked": ({"question": "2+2?", "choices": ["1", "2", "4"], "answer": r"So \boxed{C}."}, THREE, "C"),
        "a CSV": ({"question": "2+2?", "choices": "['1', '2', '4']", "answer": "4"}, THREE, "C"),
        "no choices": ({"question": "2+2?", "choices": [], "answer": "4"}, "", "4"),
        "nothing": ({"question": "2+2?", "options": None, "answer": "4"}, "", "4"),
    }
    wrong = {}
    for name, (row, end, gold) in cases.items():
        text = Value("string")
        typed = Features(question=text, choices=List(text), answer=text) if name == "no choices" else None
        found = load(Dataset.from_list([row], features=typed))
        if (found["prompt"], found["solution"]) != ("2+2?" + end, gold):
            wrong[name] = found
    assert not wrong


def test_class_labels_are_positions_of_choices():
    features = {"question": Value("string"), "choices": List(Value("string")), "answer": ClassLabel(names=list("ABC"))}
    row = {"question": "2+2?", "choices": ["2", "1", "4"], "answer": 2}
    assert load(Dataset.from_list([row], features=Features(features)))["solution"] == "C"


def test_choices_that_the_problem_lists_are_not_repeated():
    row = {"question": "2+2? (A) 1 (B) 4", "choices": ["1", "4"], "answer": 1}
    found = load(Dataset.from_list([row]))
    assert (found["prompt"], found["solution"]) == (row["question"], "B")


def test_stories_and_passages_come_before_the_question():
    cases = [
        ({"Body": "Ann has 2 pens.", "Question": "How many?", "Answer": "2"}, "Ann has 2 pens.\nHow many?"),
        ({"context": "Let $x=2$.", "question": "Find $x$.", "answer": "2"}, "Let $x=2$.\nFind $x$."),
        ({"passage": "p", "question": "q?", "answer": "2"}, "p\nq?"),
        ({"context": "Let $x=2$.", "question": "Let $x=2$. Find $x$.", "answer": "2"}, "Let $x=2$. Find $x$."),
        ({"context": " ", "question": "q?", "answer": "2"}, "q?"),
        ({"instruction": "Solve this.", "input": "1+1=?", "output": "2"}, "Solve this.\n1+1=?"),
        ({"instruction": "1+1=?", "input": "", "output": r"It is \boxed{2}."}, "1+1=?"),
        ({"instruction": "1+1=?", "output": "So\n#### 2"}, "1+1=?"),
    ]
    wrong = [(row, found) for row, prompt in cases if (found := load(Dataset.from_list([row])))["prompt"] != prompt]
    assert not wrong and all(load(Dataset.from_list([row]))["solution"] == "2" for row, _ in cases)


def test_what_cannot_be_read_is_refused_by_name(tmp_path):
    question = {"question": "2+2?"}
    cases = [
        ({"choices": ["1", "2"], "answer": 2}, "the gold answer 2 is none of the choices"),
        ({"choices": ["2", "1", "0"], "answer": "2"}, "the gold answer '2' may be the text or the position"),
        ({"choices": ["1", "2"], "answer": None}, "there is no gold answer"),
        ({"choices": [["1"], ["2"]], "answer": 0}, "the column 'choices' cannot be read: the choices are no texts"),
        ({"options": ["1"], "answer": 0}, "the column 'options' cannot be read: there are 1 choices"),
        (
            {"options": ["1", "2"], "choices": ["3", "4"], "answer": 0},
            "choices in several columns, 'options', 'choices'",
        ),
        ({"options": 5, "answer": 0}, "the column 'options' cannot be read: the choices are neither a list"),
        ({"context": ["a", "b"], "answer": 1}, "the column 'context' holds more of the problem, but no text"),
    ]
    for number, (row, message) in enumerate(cases):
        path = tmp_path / f"rows{number}.jsonl"
        path.write_text(json.dumps({"question": "1+1?", "answer": 1}) + "\n" + json.dumps(question | row) + "\n")
        with pytest.raises(ValueError, match=f"row 1: .*{message}"):
            load_local(path)
        assert load_local(path, unusable="drop")["solution"][:] == ["1"]


def test_streams_keep_the_choices(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps({"question": "2+2?", "choices": ["1", "2", "4"], "answer": 2}) + "\n")
    (row,) = load_local(path, streaming=True, prompt_format="plain", instruction=None)
    assert (row["prompt"], row["solution"]) == ("2+2?" + THREE, "C")


def test_hostile_choices_cost_no_time():
    for value in ("[" * 100_000, "['" * 50_000, ["x" * 10**6, "y"]):
        try:
            Choices(value).append_to("A" * 10**5)
        except ValueError:
            continue
