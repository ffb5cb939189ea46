"""Saved completions are read as they were sampled, and get the advantages that GRPO would give."""

import json

import pytest
from datasets import Dataset

from stapo_trl.completions import group_advantages, read_rows, tokenize_rows
from stapo_trl.warm_start import build_tokenizer


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_columns_are_found_by_their_usual_names_or_the_given_ones(tmp_path):
    path = write(tmp_path / "a.jsonl", [{"question": "1+1=?", "response": "2", "score": True}])
    assert set(read_rows(path).column_names) == {"prompt", "completion", "reward"}
    path = write(tmp_path / "b.jsonl", [{"prompt": "no", "x": "1+1=?", "y": "2", "z": 0.5}])
    row = read_rows(path, prompt="x", completion="y", reward="z")[0]
    assert row == {"prompt": "1+1=?", "completion": "2", "reward": 0.5}


def test_parquet_is_read_too(tmp_path):
    rows = Dataset.from_list([{"prompt": "1+1=?", "completion": "2", "reward": 1.0}])
    rows.to_parquet(tmp_path / "a.parquet")
    assert read_rows(tmp_path / "a.parquet")[0] == rows[0]


@pytest.mark.parametrize("missing", ["prompt", "completion", "reward"])
def test_a_missing_column_is_named(tmp_path, missing):
    row = {"prompt": "1+1=?", "completion": "2", "reward": 1.0}
    del row[missing]
    with pytest.raises(ValueError, match=f"no column '{missing}'.*--{missing}_column"):
        read_rows(write(tmp_path / "a.jsonl", [row]))


def test_other_files_are_refused(tmp_path):
    for path in (tmp_path / "absent.jsonl", tmp_path):
        with pytest.raises(ValueError, match="give an existing file"):
            read_rows(path)
    (tmp_path / "damaged.jsonl").write_text('{"prompt": ')
    with pytest.raises(ValueError, match="Cannot read .*damaged.jsonl: "):
        read_rows(tmp_path / "damaged.jsonl")


def test_prompt_and_completion_are_tokenised_apart():
    tokenizer = build_tokenizer()
    rows = [
        {"prompt": "1+1=?", "completion": "2;", "reward": 1.0},
        {"prompt": "1+1=?", "completion": "", "reward": 0.0},
    ]
    (completion,) = tokenize_rows(Dataset.from_list(rows), tokenizer)  # the empty one has no token
    assert completion.prompt_ids == tokenizer.convert_tokens_to_ids(list("1+1=?"))
    assert completion.completion_ids == tokenizer.convert_tokens_to_ids(["2", ";"])
    assert completion.problem_id == "prompt-0" and completion.advantage == pytest.approx(0.5 / (0.5**0.5 + 1e-4))


def test_conversations_take_the_chat_template_and_their_last_message():
    tokenizer = build_tokenizer()
    tokenizer.chat_template = (
        "{% for m in messages %}{{ m['content'] }};{% endfor %}{% if add_generation_prompt %}let{% endif %}"
    )
    rows = [
        {
            "prompt": [{"role": "user", "content": "7"}],
            "completion": [{"role": "assistant", "content": "8"}],
            "advantage": 2.0,
        }
    ]
    (completion,) = tokenize_rows(Dataset.from_list(rows), tokenizer)
    assert tokenizer.decode(completion.prompt_ids) == "7;let" and tokenizer.decode(completion.completion_ids) == "8"
    assert completion.advantage == 2.0 and completion.reward is None


def test_sampled_ids_are_taken_as_they_are():
    rows = [{"prompt": "1+1=?", "completion_ids": [4, 1], "problem_id": 7, "advantage": 1.0}]
    (completion,) = tokenize_rows(Dataset.from_list(rows), build_tokenizer())
    assert completion.completion_ids == [4, 1] and completion.problem_id == "7"


def test_a_completion_without_a_reward_counts_in_no_mean():
    # Mean 0.5, standard deviation sqrt(0.5)
    expected = 0.5 / (0.5**0.5 + 1e-4)
    assert group_advantages([1.0, None, 0.0], ["a", "a", "a"]) == pytest.approx([expected, 0.0, -expected])


def test_equal_rewards_and_single_completions_give_exactly_zero():
    # The mean of three times 0.1 is 0.10000000000000002
    assert group_advantages([0.1, 0.1, 0.1, 5.0], ["a", "a", "a", "b"]) == [0.0] * 4
