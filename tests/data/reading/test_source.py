"""Files, folders and repositories are opened as they are stored; what is broken is named."""

import gzip
import json
import shutil
import zipfile
from types import SimpleNamespace

import pytest
from datasets import Dataset, DatasetDict

from stapo_trl.data.reading.columns import value_at
from stapo_trl.data.reading.source import open_rows


ROWS = [
    {"question": "1+1?", "answer": "02"},
    {"question": "2+2,\n3?", "answer": "NA"},
    {"question": "0?", "answer": ""},
]


@pytest.fixture
def repo(tmp_path):
    (tmp_path / "repo").mkdir()
    return tmp_path / "repo"


def test_text_comes_out_as_it_went_in(tmp_path):
    rows, lines = Dataset.from_list(ROWS), "".join(json.dumps(row) + "\n" for row in ROWS)
    rows.to_parquet(tmp_path / "rows.parquet")
    for kind, separator in (("csv", ","), ("tsv", "\t"), ("csv.gz", ",")):
        rows.to_pandas().to_csv(tmp_path / f"rows.{kind}", index=False, sep=separator)
    (tmp_path / "rows.json").write_text(json.dumps(ROWS))
    (tmp_path / "rows.jsonl").write_text(lines)
    (tmp_path / "rows.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
    for kind in ("parquet", "jsonl", "json", "csv", "tsv", "jsonl.gz", "csv.gz"):
        prefix = ("(row)",) if "json" in kind else ()
        for streaming in (False, True):
            read = [
                {name: value_at(row, (*prefix, name)) for name in ("question", "answer")}
                for row in open_rows("", tmp_path / f"rows.{kind}", streaming=streaming)
            ]
            assert read == ROWS, (kind, streaming)


def test_the_index_that_pandas_writes_does_no_harm(tmp_path):
    Dataset.from_list(ROWS).to_pandas().to_csv(tmp_path / "rows.csv")
    assert open_rows("", tmp_path / "rows.csv")["answer"][0] == "02"


def test_a_broken_line_is_named(tmp_path):
    file = tmp_path / "rows.jsonl"
    for broken in ('{"question": "2+2?", "ans', "garbage", "[1]", "5"):
        file.write_text('{"question": "1+1?", "answer": 2}\n\n' + broken + '\n{"question": "3?", "answer": 3}\n')
        with pytest.raises(ValueError, match=r"rows.jsonl, line 3, is not"):
            open_rows("", file)


def test_a_changed_file_is_read_again(tmp_path):
    file = tmp_path / "rows.jsonl"
    for answer in ("1", "27"):
        file.write_text(f'{{"question": "1?", "answer": {answer}}}\n')
        assert value_at(open_rows("", file)[0], ("(row)", "answer")) == int(answer)


def test_a_changed_folder_and_another_of_its_name_are_read_again(write_repository):
    for name, answer in (("one/math", "1"), ("one/math", "27"), ("two/math", "3")):
        shutil.rmtree(name, ignore_errors=True)
        write_repository(name, {"train": [{"question": "1?", "answer": answer}]})
        assert open_rows("", path=name)["answer"][:] == [answer]


def test_missing_empty_and_unknown_files_are_refused(tmp_path):
    (tmp_path / "rows.jsonl").touch()
    (tmp_path / "rows.xlsx").write_text("x")
    with pytest.raises(FileNotFoundError, match="no file .*none.jsonl"):
        open_rows("", tmp_path / "none.jsonl")
    with pytest.raises(ValueError, match="is empty"):
        open_rows("", tmp_path / "rows.jsonl")
    with pytest.raises(ValueError, match="is none of parquet, jsonl"):
        open_rows("", tmp_path / "rows.xlsx")


def test_splits_and_configurations_of_a_repository(write_repository):
    write_repository(
        "some/math",
        {"algebra": {"train": ROWS[:1], "test": ROWS[2:]}, "geometry": {"train": ROWS[1:2], "test": ROWS[:1]}},
    )
    assert list(open_rows("some/math")) == ROWS[:2]  # all configurations, in order, and the split train
    assert list(open_rows("some/math", streaming=True)) == ROWS[:2]
    assert list(open_rows("some/math", config="geometry", split="test")) == ROWS[:1]
    assert list(open_rows("", path="some/math", config="algebra")) == ROWS[:1]
    with pytest.raises(ValueError, match=r"no split 'validation': give one of \['train', 'test'\]"):
        open_rows("some/math", split="validation")
    with pytest.raises(ValueError, match="topology"):
        open_rows("some/math", config="topology")


def test_the_only_split_is_taken_whatever_its_name(write_repository):
    write_repository("some/aime", {"train": ROWS})
    assert len(open_rows("some/aime", default_split="test")) == 3


def test_a_csv_in_a_repository_stays_text(tmp_path):
    (tmp_path / "repo").mkdir()
    (tmp_path / "repo/test.csv").write_text("question,answer\n1+1?,02\n")
    assert list(open_rows("", path=tmp_path / "repo")) == ROWS[:1]


def test_folders_of_save_to_disk_are_opened(tmp_path):
    Dataset.from_list(ROWS).save_to_disk(tmp_path / "one")
    DatasetDict(train=Dataset.from_list(ROWS), test=Dataset.from_list(ROWS[:1])).save_to_disk(tmp_path / "two")
    assert list(open_rows("", path=tmp_path / "one")) == ROWS
    assert list(open_rows("", path=tmp_path / "two", split="test")) == ROWS[:1]


def test_an_unreachable_repository_says_what_to_do():
    with pytest.raises(FileNotFoundError, match="'gone/math' could not be loaded .* a local file as `path`"):
        open_rows("gone/math")


def test_nothing_in_a_repository_is_trusted_and_the_revision_is_handed_on(monkeypatch):
    calls = []

    def fake(repo_id, **options):
        calls.append((repo_id, options))
        return DatasetDict(train=Dataset.from_list(ROWS)) if "streaming" in options else SimpleNamespace(name="arrow")

    monkeypatch.setattr("stapo_trl.data.reading.repository.load_dataset", fake)
    monkeypatch.setattr("stapo_trl.data.reading.repository.load_dataset_builder", fake)
    open_rows("some/repo", config="main", revision="abc", streaming=True)
    options = {"name": "main", "revision": "abc"}
    assert calls == [("some/repo", options), ("some/repo", options | {"streaming": True})]


MIXED = [
    {"question": "1?", "answer": "025"},
    {"question": "2?", "answer": 25},
    {"question": "3?", "answer": "2024-01-01"},
]


@pytest.mark.parametrize("streaming", [False, True])
def test_json_in_a_repository_is_read_exactly(write_repository, streaming):
    write_repository("some/math", {"one": {"train": MIXED}, "two": {"train": MIXED[:1]}}, kind="jsonl")
    for rows, expected in (
        (open_rows("some/math", config="one", streaming=streaming), MIXED),
        (open_rows("some/math", streaming=streaming), MIXED + MIXED[:1]),  # both configurations
    ):
        assert [json.loads(row["(row)"]) for row in rows] == expected


def test_a_zipped_json_in_a_repository_is_read_as_it_is_now(repo):
    for rows in (MIXED, MIXED[:1]):
        with zipfile.ZipFile(repo / "train.zip", "w") as archive:
            archive.writestr("train.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
        read = open_rows("", path=repo)
        (repo / "train.zip").unlink()
        assert [json.loads(row["(row)"]) for row in read] == rows


@pytest.mark.parametrize("streaming", [False, True])
def test_text_that_would_become_a_number_is_refused_in_parquet(repo, streaming):
    for number, answer in enumerate((7, "025")):
        rows = Dataset.from_list([{"question": "1?", "reward_model": {"ground_truth": answer}}])
        rows.to_parquet(repo / f"train-{number:05d}-of-00002.parquet")
    with pytest.raises(ValueError, match=r"'reward_model' is text in .*train-00001-of-00002.parquet.* 025 into 25"):
        open_rows("", path=repo, streaming=streaming)
    (repo / "train-00000-of-00002.parquet").unlink()
    assert open_rows("", path=repo, streaming=streaming)
    header = "---\ndataset_info:\n  features:\n  - name: question\n    dtype: int64\n---\n"
    (repo / "README.md").write_text(header)
    with pytest.raises(ValueError, match="'question' is text in .* and Value.*int64"):
        open_rows("", path=repo, streaming=streaming)


def test_a_damaged_file_is_refused_by_its_name(tmp_path):
    cases = [
        ("rows.jsonl.gz", b"plain", "is no complete gzip file"),
        ("rows.jsonl.gz", gzip.compress(b'{"a": 1}\n' * 99, mtime=0)[:-9], "is no complete gzip file"),
        ("rows.csv.gz", b"plain", "cannot be read as csv"),
        ("rows.csv", b"question,answer\n1?,2,3\n", "first row has more cells than there are columns"),
        ("rows.csv", b"question,answer\n1?,2\n1?,2,3\n", "cannot be read as csv: .*Expected 2 fields in line 3"),
        ("rows.csv", b'question,answer\n"1?,2\n', "cannot be read as csv: .*EOF inside string"),
        ("rows.csv", b"question,answer\n", "it has no rows"),
        ("rows.csv", b"question;answer\n1?;2\n", "separated by semicolons, not by commas: save it with commas"),
        ("rows.csv", b"question\tanswer\n1?\t2\n", "separated by tabs, not by commas"),
        ("rows.tsv", b"question,answer\n1?,2\n", "separated by commas, not by tabs: save it with tabs"),
        ("rows.csv", b"question,answer,answer\n1?,2,3\n", "several columns named 'answer': rename or remove"),
        ("rows.jsonl", b'{"answer": 1, "answer": 2}\n', "line 1, has the key 'answer' twice in one object"),
        ("rows.json", b'[{"x": {"answer": 1, "answer": 2}}]', "has the key 'answer' twice in one object"),
        ("rows.csv", "question,answer\n\u00e9,1\n".encode("latin-1"), "cannot be read as csv: 'utf-8' codec"),
        ("rows.csv", b" \n", "cannot be read as csv"),
        ("rows.parquet", b"PAR1", "cannot be read as parquet"),
        ("rows.arrow", b"x", "cannot be read as arrow"),
        ("rows.jsonl", b"\n \n", "has no rows"),
        ("rows.json", b"[]", "has no rows"),
        ("rows.json", b'{\n "data": []}', "Give one object a line, or one list of objects"),
    ]
    for number, (name, content, message) in enumerate(cases):
        file = tmp_path / str(number) / name
        file.parent.mkdir()
        file.write_bytes(content)
        with pytest.raises(ValueError, match=f"{name}.*{message}"):
            open_rows("", file)


def test_a_damaged_repository_is_refused_and_nothing_in_it_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    repositories = [
        {"README.md": "---\nconfigs: [\n---\n", "train.jsonl": "{}"},
        {"README.md": "---\nconfigs: !!python/object/apply:os.system ['touch run']\n---\n", "train.jsonl": "{}"},
        {"train.jsonl": "garbage"},
        {"train.parquet": "PAR1"},
        {"train.csv": '"'},
        {"train.csv": "question;answer\n1?;2\n"},
        {"train.csv": "question,answer,answer\n1?,2,3\n"},
        {"train.jsonl": '{"question": "1?", "question": "2?", "answer": 2}\n'},
        {"train.csv": "question,answer\n1?,2,3\n"},  # would give the columns 2 and 3
        {"train.zip": "PK"},
    ]
    for number, files in enumerate(repositories):
        folder = tmp_path / f"repo{number}"
        folder.mkdir()
        for name, content in files.items():
            (folder / name).write_text(content)
        with pytest.raises(ValueError, match=f"'.*{folder.name}' cannot be read"):
            open_rows("", path=folder)
    assert not (tmp_path / "run").exists()


def test_a_list_may_stand_behind_any_white_space(tmp_path):
    (tmp_path / "rows.json").write_text("\n" * 200 + json.dumps(ROWS))
    assert len(open_rows("", tmp_path / "rows.json")) == 3


def test_signs_that_are_patterns_elsewhere_are_names_of_files(tmp_path):
    (tmp_path / "rows[1]*.csv").write_text("question,answer\n1+1?,02\n")
    assert open_rows("", tmp_path / "rows[1]*.csv")[0] == ROWS[0]


def test_without_a_network_the_files_are_used_that_were_fetched_before(tmp_path, monkeypatch):
    commit = "a" * 40
    repository = tmp_path / "hub" / "datasets--some--math"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text(commit)
    (repository / "snapshots" / commit).mkdir(parents=True)
    (repository / "snapshots" / commit / "test.jsonl").write_text("".join(json.dumps(row) + "\n" for row in MIXED))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    for revision in (None, commit):
        rows = open_rows("some/math", revision=revision)
        assert [json.loads(row["(row)"]) for row in rows] == MIXED
    with pytest.raises(FileNotFoundError, match="'some/math' could not be loaded"):
        open_rows("some/math", revision="b" * 40)
