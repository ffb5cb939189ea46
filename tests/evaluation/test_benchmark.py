import json

import pytest
from datasets import Dataset

from stapo_trl.evaluation.benchmark import from_dataset, open_benchmark, open_benchmarks


def rows(**columns):
    return Dataset.from_dict(columns)


def test_repeated_rows_are_one_problem():
    # An AIME file holds every problem 32 times, under running numbers
    dataset = rows(prompt=["a", "b"] * 32, solution=["1", "2"] * 32, problem_id=[str(number) for number in range(64)])
    benchmark = from_dataset("aime", dataset)
    assert [problem.problem_id for problem in benchmark.problems] == ["0", "1"] and benchmark.rows == 64


def test_different_problems_of_one_name_are_refused():
    with pytest.raises(ValueError, match="2 different problems but 1 different problem_id"):
        from_dataset("x", rows(prompt=["a", "b"], solution=["1", "2"], problem_id=["p", "p"]))


def test_missing_columns_and_rows_are_refused_by_name():
    with pytest.raises(ValueError, match="missing: .*solution"):
        from_dataset("x", rows(prompt=["a"], problem_id=["p"]))
    with pytest.raises(ValueError, match="missing: rows"):
        from_dataset("x", rows(prompt=[], solution=[], problem_id=[]))


def test_a_file_of_the_schema_is_asked_as_it_is(tmp_path):
    path = tmp_path / "sums.jsonl"
    row = {"prompt": "1+1=?", "solution": "2", "problem_id": "one", "source": "mine"}
    path.write_text((json.dumps(row) + "\n") * 3)
    benchmark = open_benchmark(str(path))
    assert benchmark.name == "sums" and benchmark.rows == 3
    (problem,) = benchmark.problems
    assert (problem.prompt, problem.solution, problem.problem_id) == ("1+1=?", "2", "one")


def test_another_file_is_read_like_any_data_set(tmp_path):
    path = tmp_path / "sums.jsonl"
    path.write_text(json.dumps({"question": "What is $1+1$?", "answer": "2"}) + "\n")
    (problem,) = open_benchmark(str(path)).problems
    assert "\\boxed{}" in problem.prompt[0]["content"] and problem.solution == "2"


def test_the_embedded_task_asks_its_test_split():
    benchmark = open_benchmark("arithmetic", size=3)
    assert [problem.problem_id for problem in benchmark.problems] == [f"arithmetic-test-{i}" for i in range(3)]


def test_an_unknown_name_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match="no benchmark 'aime23'.*aime24.*arithmetic"):
        open_benchmark("aime23")


def test_the_checksum_changes_with_prompts_and_golds():
    one = from_dataset("x", rows(prompt=["a"], solution=["1"], problem_id=["p"])).checksum
    assert one == from_dataset("x", rows(prompt=["a"], solution=["1"], problem_id=["p"])).checksum
    assert one != from_dataset("x", rows(prompt=["b"], solution=["1"], problem_id=["p"])).checksum
    assert one != from_dataset("x", rows(prompt=["a"], solution=["2"], problem_id=["p"])).checksum


def test_the_commit_of_a_fetched_dataset_is_kept():
    dataset = rows(prompt=["a"], solution=["1"], problem_id=["p"])
    commit = "0123456789abcdef" * 2 + "01234567"
    dataset.info.download_checksums = {f"hf://datasets/some/data@{commit}/test.parquet": {}}
    assert from_dataset("x", dataset).revision == commit


ROW = {"prompt": "1+1=?", "solution": "2", "problem_id": "a", "source": "s"}


def write_rows(path, *rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def test_golds_and_names_of_a_file_become_text(tmp_path):
    golds = ["025", 25, 0.5, ["2", "3"]]
    rows = [ROW | {"prompt": str(number), "solution": gold, "problem_id": number} for number, gold in enumerate(golds)]
    problems = open_benchmark(write_rows(tmp_path / "own.jsonl", *rows)).problems
    assert [problem.solution for problem in problems] == ["025", "25", "0.5", "2, 3"]
    assert [problem.problem_id for problem in problems] == ["0", "1", "2", "3"]


def test_a_row_that_cannot_be_asked_is_named(tmp_path):
    cases = [
        ({"prompt": None}, "row 1: the prompt is neither text nor messages"),
        ({"prompt": " "}, "row 1: the prompt is neither"),
        ({"prompt": [{"role": "user", "content": None}]}, "row 1: the prompt is neither"),
        ({"prompt": "\ud800"}, "row 1: .*surrogates not allowed"),
        ({"prompt": [{"role": "user", "content": "1+1=?"}]}, "prompts of plain text and chats"),
        ({"solution": None}, "row 1: there is no gold answer"),
        ({"solution": True}, "row 1: the gold answer is neither text nor a number: True"),
        ({"problem_id": "\ud800"}, "row 1: .*surrogates not allowed"),
    ]
    for number, (change, message) in enumerate(cases):
        path = tmp_path / f"own-{number}.jsonl"
        with pytest.raises(ValueError, match=f"{path.name}.*{message}"):
            open_benchmark(write_rows(path, ROW, ROW | {"problem_id": "b"} | change))


def test_unusable_rows_are_dropped_and_counted(tmp_path):
    own = write_rows(tmp_path / "own.jsonl", ROW, ROW | {"problem_id": "b", "solution": None}, ROW | {"prompt": None})
    other = write_rows(tmp_path / "other.jsonl", {"problem": "1+1?", "answer": "2"}, {"problem": "2+2?", "answer": ""})
    for path, rows, dropped in ((own, 3, 2), (other, 2, 1)):
        with pytest.raises(ValueError, match="drop .*unusable='drop'"):
            open_benchmark(path)
        benchmark = open_benchmark(path, unusable="drop")
        assert (len(benchmark.problems), benchmark.rows, benchmark.dropped) == (1, rows, dropped)
    with pytest.raises(ValueError, match="no usable row, such as row 0: there is no gold"):
        open_benchmark(write_rows(tmp_path / "none.jsonl", ROW | {"solution": None}), unusable="drop")
    with pytest.raises(ValueError, match="must be 'raise' or 'drop', got 'keep'"):
        open_benchmark(own, unusable="keep")


def test_files_of_one_name_are_named_by_their_folders(tmp_path):
    paths = {}
    for name in ("gsm8k/a/test", "gsm8k/b/test", "math/test", "sums", "aime24"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        paths[name] = write_rows(tmp_path / f"{name}.jsonl", ROW)
    benchmarks = open_benchmarks(list(paths.values()))
    assert [each.name for each in benchmarks] == ["a/test", "b/test", "math/test", "sums", "aime24"]
    assert [problem.benchmark for each in benchmarks for problem in each.problems] == [
        each.name for each in benchmarks
    ]
    for folder in ("x", "y"):
        (tmp_path / folder / "data").mkdir(parents=True)
        paths[folder] = write_rows(tmp_path / folder / "data" / "test.jsonl", ROW)
    assert [each.name for each in open_benchmarks([paths["x"], paths["y"]])] == ["x/data/test", "y/data/test"]
    assert [each.name for each in open_benchmarks([paths["x"]])] == ["test"]
