"""Saved completions are read as they were sampled, and get the advantages that GRPO would give."""

import csv
import json
import math

import pytest
from datasets import Dataset
from toys import build_byte_tokenizer

from stapo_trl.arithmetic.warm_start import build_tokenizer
from stapo_trl.cli.score.completions import group_advantages, read_rows, tokenize_rows


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_columns_are_found_by_their_usual_names_or_the_given_ones(tmp_path):
    path = write(tmp_path / "a.jsonl", [{"question": "1+1=?", "response": "2", "score": True}])
    assert set(read_rows(path)[0]) == {"prompt", "completion", "reward"}
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
    with pytest.raises(FileNotFoundError, match="There is no file .*absent.jsonl"):
        read_rows(tmp_path / "absent.jsonl")
    (tmp_path / "damaged.jsonl").write_text('{"prompt": ')
    with pytest.raises(ValueError, match="damaged.jsonl, line 1, is not JSON"):
        read_rows(tmp_path / "damaged.jsonl")


def test_text_is_read_as_it_was_written(tmp_path):
    rows = [{"prompt": "025", "completion": "2024-01-01", "reward": 1}, {"prompt": "7", "completion": "7", "x": [1]}]
    assert [row["prompt"] + row["completion"] for row in read_rows(write(tmp_path / "a.jsonl", rows))] == [
        "0252024-01-01",
        "77",
    ]


def test_names_are_found_in_any_case_and_under_those_of_other_tools(tmp_path):
    for names in (
        ("Prompt", "Response", "Reward"),
        ("question", "output", "score"),
        ("input", "generated_text", "reward"),
    ):
        (row,) = read_rows(write(tmp_path / "a.jsonl", [dict(zip(names, ("1+1=?", "2", 1.0), strict=True))]))
        assert row == {"prompt": "1+1=?", "completion": "2", "reward": 1.0}


def test_a_csv_may_hold_chats_token_ids_and_gaps(tmp_path):
    chat = json.dumps([{"role": "user", "content": "7"}])
    columns = ["prompt", "completion", "completion_ids", "reward"]
    table = [[chat, "[2, 3]", "[4, 5]", "1"], ["025", "[x]", "[4]", ""]]
    with open(tmp_path / "a.csv", "w", newline="") as file:
        csv.writer(file).writerows([columns, *table])
    first, second = read_rows(tmp_path / "a.csv")
    assert (
        first["prompt"] == json.loads(chat)
        and first["completion"] == "[2, 3]"
        and first["completion_ids"] == [4, 5]
        and first["reward"] == "1"
    )
    assert second == {"prompt": "025", "completion": "[x]", "completion_ids": [4], "reward": None}


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


def test_the_last_turn_is_scored_behind_the_turns_before_it():
    tokenizer = build_tokenizer()
    tokenizer.chat_template = "{% for m in messages %}{{ m['content'] }};{% endfor %}"
    turns = [("assistant", "1"), ("tool", "2"), ("assistant", "3"), ("tool", "4")]
    row = {
        "prompt": [{"role": "user", "content": [{"type": "text", "text": "7"}]}],
        "completion": [{"role": role, "content": content} for role, content in turns],
        "advantage": 1.0,
    }
    (completion,) = tokenize_rows([row], tokenizer)
    assert tokenizer.decode(completion.prompt_ids) == "7;1;2;" and tokenizer.decode(completion.completion_ids) == "3"
    # Sampled ids are all turns, so nothing of them belongs to the prompt
    (completion,) = tokenize_rows([row | {"completion_ids": [4, 5, 6]}], tokenizer)
    assert tokenizer.decode(completion.prompt_ids) == "7;" and completion.completion_ids == [4, 5, 6]
    with pytest.raises(ValueError, match="the prompt is no chat that they could follow"):
        tokenize_rows([row | {"prompt_ids": [4]}], tokenizer)


def test_prompts_may_be_token_ids():
    row = {"prompt_ids": [5, 6], "completion_ids": [4, 1], "advantage": 1.0}
    other = row | {"prompt_ids": [5, 7]}
    completions = tokenize_rows([row, other, row], build_tokenizer())
    assert completions[0].prompt_ids == [5, 6]
    assert [completion.problem_id for completion in completions] == ["prompt-0", "prompt-1", "prompt-0"]


def test_nothing_said_counts_in_the_mean_and_has_no_token():
    rows = [{"prompt": "1", "completion": nothing, "reward": 0.0} for nothing in ("", None, [])]
    (completion,) = tokenize_rows([*rows, {"prompt": "1", "completion": "2", "reward": "1"}], build_tokenizer())
    assert completion.advantage == pytest.approx(0.75 / (0.5 + 1e-4))  # mean 1/4, standard deviation 1/2


def test_a_reward_that_is_missing_is_none_whatever_wrote_it():
    rows = [{"prompt": "1", "completion": "2", "reward": reward} for reward in (None, "", math.nan, 1.0, 0.0)]
    assert [completion.reward for completion in tokenize_rows(rows, build_tokenizer())] == [None, None, None, 1.0, 0.0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"completion": 2}, "the completion is neither text nor a list of messages: 2"),
        ({"completion": ["2"]}, "the completion is a list, but not of messages"),
        ({"completion": {"role": "assistant", "content": "2"}}, "the completion is neither text nor a list"),
        ({"completion": "a\ud800"}, "the completion holds half a character"),
        (
            {"completion": [{"role": "assistant"}, {"role": "assistant"}]},
            "the completion has several messages, but the prompt is no chat",
        ),
        ({"prompt": None}, "the prompt is neither text nor a list of messages: None"),
        ({"prompt": 5}, "the prompt is neither text nor a list of messages: 5"),
        ({"prompt": ""}, "the prompt is empty"),
        ({"prompt": [5]}, "the prompt is a list, but not of messages"),
        (
            {"prompt": [{"role": "user", "content": "1"}]},
            "the prompt is a chat, but the tokenizer has no chat template",
        ),
        ({"completion_ids": [-1]}, "`completion_ids` is no list of token ids"),
        ({"completion_ids": [1.0]}, "`completion_ids` is no list of token ids"),
        ({"completion_ids": "12"}, "`completion_ids` is no list of token ids"),
        ({"prompt_ids": [[1]]}, "`prompt_ids` is no list of token ids"),
        ({"reward": "good"}, "the reward is no number: good"),
        ({"reward": math.inf}, "the reward is no number: inf"),
        ({"reward": [1]}, r"the reward is no number: \[1\]"),
        ({"advantage": 1e300}, "the advantage is no number: 1e\\+300"),
    ],
)
def test_what_cannot_be_scored_is_named_by_its_row(change, message):
    row = {"prompt": "1", "completion": "2", "reward": 1.0}
    with pytest.raises(ValueError, match=f"Row 1 cannot be scored: {message}"):
        tokenize_rows([row, row | change], build_tokenizer())


def test_what_a_chat_template_refuses_is_named_by_its_row():
    tokenizer = build_tokenizer()
    row = {"prompt": [{"role": "bot", "content": "1"}], "completion": "2", "reward": 1.0}
    for template in ("{{ raise_exception('no such role') }}", "{{ messages[0].a.b }}"):
        tokenizer.chat_template = template
        with pytest.raises(ValueError, match="Row 0 cannot be scored: .*('dict object'|no such role)"):
            tokenize_rows([row], tokenizer)


def test_a_completion_without_a_reward_counts_in_no_mean():
    # Mean 0.5, standard deviation sqrt(0.5)
    expected = 0.5 / (0.5**0.5 + 1e-4)
    assert group_advantages([1.0, None, 0.0], ["a", "a", "a"]) == pytest.approx([expected, 0.0, -expected])


def test_equal_rewards_and_single_completions_give_exactly_zero():
    # The mean of three times 0.1 is 0.10000000000000002
    assert group_advantages([0.1, 0.1, 0.1, 5.0], ["a", "a", "a", "b"]) == [0.0] * 4


def test_a_chat_is_rendered_as_it_was_sampled():
    tokenizer = build_byte_tokenizer("qwen3")
    row = {"prompt": [{"role": "user", "content": "7"}], "completion": "8", "advantage": 1.0}
    ends = []
    for options in (None, {"enable_thinking": False}):
        (completion,) = tokenize_rows([row], tokenizer, options)
        ends.append(tokenizer.decode(completion.prompt_ids).partition("assistant")[2])
    assert ends == ["\n", "\n<think>\n\n</think>\n\n"]
