import json
from dataclasses import replace

import pytest

from stapo_trl.evaluation.samples import Sample, SampleFile


SETTINGS = {"seed": 0, "model": "m"}


def sample(number, text="\\boxed{2}"):
    return Sample("a", "p", number, "c", text, 3, False, 0.5, "correct", "2")


def test_what_was_appended_is_read_again(tmp_path):
    path = tmp_path / "deep" / "samples.jsonl"
    hostile = "line\nbreak \u2028 \ud800 [bold] \x00"
    SampleFile(path, SETTINGS).append([sample(0), sample(1, hostile)])
    SampleFile(path, SETTINGS).append([sample(2)])
    assert SampleFile(path, SETTINGS).samples == {
        ("a", "p", 0): sample(0),
        ("a", "p", 1): sample(1, hostile),
        ("a", "p", 2): sample(2),
    }


def test_wherever_a_killed_run_stopped_writing_complete_lines_survive(tmp_path):
    path = tmp_path / "samples.jsonl"
    SampleFile(path, SETTINGS).append([sample(0), sample(1)])
    content = path.read_bytes()
    ends = [index for index, byte in enumerate(content) if byte == ord("\n")]
    for length in range(len(content) + 1):
        path.write_bytes(content[:length])
        file = SampleFile(path, SETTINGS)
        assert len(file.samples) == max(0, sum(end < length for end in ends) - 1)
        file.append([sample(7)])
        assert SampleFile(path, SETTINGS).samples[("a", "p", 7)] == sample(7)


def test_samples_of_other_settings_are_refused_by_name(tmp_path):
    path = tmp_path / "samples.jsonl"
    SampleFile(path, SETTINGS).append([sample(0)])
    with pytest.raises(ValueError, match="seed: 0 there, 1 now"):
        SampleFile(path, SETTINGS | {"seed": 1})


def test_another_file_is_refused_and_left_alone(tmp_path):
    path = tmp_path / "samples.jsonl"
    contents = ["no json", '{"seed": 0, "model": "m"}\n{"x": 1}', "[1]\nnull", "5", "null", "[]", "[" * 5000]
    for content in contents:
        path.write_text(content + "\n")
        with pytest.raises(ValueError, match="samples.jsonl is not a file of samples"):
            SampleFile(path, SETTINGS)
        assert path.read_text() == content + "\n"


def test_a_repeated_sample_counts_once(tmp_path):
    path = tmp_path / "samples.jsonl"
    SampleFile(path, SETTINGS).append([sample(0), sample(0)])
    assert len(SampleFile(path, SETTINGS).samples) == 1


def test_lines_hold_the_text_and_the_extracted_answer(tmp_path):
    path = tmp_path / "samples.jsonl"
    SampleFile(path, SETTINGS).append([sample(0)])
    header, line = map(json.loads, path.read_text().splitlines())
    assert header == SETTINGS
    assert (line["text"], line["answer"], line["verdict"], line["number"]) == ("\\boxed{2}", "2", "correct", 0)


def test_a_sample_of_other_types_is_named_by_its_line(tmp_path):
    wrong = {"text": 5, "num_tokens": "3", "truncated": "no", "entropy": "x", "benchmark": None}
    for field, value in wrong.items():
        file = SampleFile(tmp_path / f"{field}.jsonl", SETTINGS)
        file.append([sample(0), replace(sample(1), **{field: value})])
        with pytest.raises(ValueError, match=f"is not a file of samples .line 3 has the {field} {value!r}"):
            SampleFile(file.path, SETTINGS)
