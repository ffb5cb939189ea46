"""Files, folders and repositories are opened as they are stored; what is broken is named."""

import gzip
import json

import pytest
from datasets import Dataset, DatasetDict

from stapo_trl.data.columns import value_at
from stapo_trl.data.source import open_rows


ROWS = [
    {"question": "1+1?", "answer": "02"},
    {"question": "2+2,\n3?", "answer": "NA"},
    {"question": "0?", "answer": ""},
]


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("kind", ["parquet", "jsonl", "json", "csv", "tsv", "jsonl.gz", "csv.gz"])
def test_text_comes_out_as_it_went_in(tmp_path, kind, streaming):
    file, rows = tmp_path / f"rows.{kind}", Dataset.from_list(ROWS)
    if kind == "parquet":
        rows.to_parquet(file)
    elif "csv" in kind or kind == "tsv":
        rows.to_pandas().to_csv(file, index=False, sep="\t" if kind == "tsv" else ",")
    elif kind == "json":
        file.write_text(json.dumps(ROWS))
    else:
        text = "".join(json.dumps(row) + "\n" for row in ROWS).encode()
        file.write_bytes(gzip.compress(text) if kind.endswith("gz") else text)
    read = [
        {name: value_at(row, (*prefix, name)) for name in ("question", "answer")}
        for row in open_rows("", file, streaming=streaming)
        for prefix in [("(row)",) if "json" in kind else ()]
    ]
    assert read == ROWS


def test_the_index_that_pandas_writes_does_no_harm(tmp_path):
    Dataset.from_list(ROWS).to_pandas().to_csv(tmp_path / "rows.csv")
    assert open_rows("", tmp_path / "rows.csv")["answer"][0] == "02"


@pytest.mark.parametrize("broken", ['{"question": "2+2?", "ans', "garbage", "[1]", "5"])
def test_a_broken_line_is_named(tmp_path, broken):
    file = tmp_path / "rows.jsonl"
    file.write_text('{"question": "1+1?", "answer": 2}\n\n' + broken + '\n{"question": "3?", "answer": 3}\n')
    with pytest.raises(ValueError, match=r"rows.jsonl, line 3, is not"):
        open_rows("", file)


def test_a_changed_file_is_read_again(tmp_path):
    file = tmp_path / "rows.jsonl"
    for answer in ("1", "27"):
        file.write_text(f'{{"question": "1?", "answer": {answer}}}\n')
        assert value_at(open_rows("", file)[0], ("(row)", "answer")) == int(answer)


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
        return DatasetDict(train=Dataset.from_list(ROWS))

    monkeypatch.setattr("stapo_trl.data.source.load_dataset", fake)
    open_rows("some/repo", config="main", revision="abc", streaming=True)
    assert calls == [("some/repo", {"name": "main", "revision": "abc", "streaming": True})]
