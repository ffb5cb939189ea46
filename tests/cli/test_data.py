"""`stapo data check` prints what a run would train on."""

import json
import re

import pytest
from toys import build_byte_tokenizer

from stapo_trl import cli
from stapo_trl.arithmetic.warm_start import build_tokenizer


def test_it_counts_and_shows(tmp_path, capsys):
    bases = "Find the sum of all integer bases $b>9$ for which $17_b$ is a divisor of $97_b.$"  # of AIME 2025
    rows = [{"q": "12+7=?", "a": "19"}, {"q": "12+7=?", "a": "19"}, {"q": "1+1=?", "a": ""}, {"q": bases, "a": "70"}]
    file = tmp_path / "made.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    build_tokenizer().save_pretrained(tmp_path / "tokenizer")
    options = ["--problem_column", "q", "--solution_column", "a", "--tokenizer", str(tmp_path / "tokenizer")]
    cli.main(["data", "check", str(file), *options, "--prompt_format", "plain"])
    counts, lengths, overlap, sample = capsys.readouterr().out.split("\n", 3)
    assert counts == "made: 4 rows, 1 copy of another, 1 unusable (row 2: there is no gold answer), 2 problems"
    # letters and digits that are no word of this tokenizer count one each
    assert lengths.startswith("tokens of a prompt: median ") and "longest" in lengths
    assert overlap == "in evaluation sets: aime24 0, aime25 1, amc23 0, math500 0, minerva 0, olympiadbench 0"
    assert json.loads(sample)["solution"] == "19"
    with pytest.raises(SystemExit, match="no chat template: use the prompt format 'plain'"):
        cli.main(["data", "check", str(file), *options])
    (tmp_path / "tokenizer" / "chat_template.jinja").write_text("{{ raise_exception('no such role') }}")
    with pytest.raises(SystemExit, match="The chat template refuses the prompt .*: no such role"):
        cli.main(["data", "check", str(file), *options])


def test_named_sets_are_read_from_a_local_copy(tmp_path, capsys):
    file = tmp_path / "copy.jsonl"
    file.write_text(json.dumps({"question": "Pens?", "answer": "3*4.\n#### 12"}) + "\n")
    cli.main(["data", "check", "gsm8k", "--path", str(file)])
    assert "gsm8k: 1 row, 1 problem\n" in capsys.readouterr().out
    cli.main(["data", "check", "minerva", "--path", str(file)])
    assert "minerva: 1 row, 1 problem (272 expected)\n" in capsys.readouterr().out


def test_what_cannot_be_loaded_ends_with_a_sentence():
    cases = [
        (["gsm9k"], "'gsm9k' is neither a file or folder nor one of dapo-math-17k, .*olympiadbench"),
        (["gsm8k"], "'openai/gsm8k' could not be loaded"),
        (["aime24", "--path", "nowhere"], "There is no file nowhere"),
        ([""], "'' is neither a file or folder nor one of"),
        (["/dev/null", "--path", "x"], "--path goes with a named set"),
    ]
    for arguments, message in cases:
        with pytest.raises(SystemExit, match=message):
            cli.main(["data", "check", *arguments])


def test_folders_are_looked_at_too_and_a_missing_tokenizer_is_named(tmp_path, capsys):
    (tmp_path / "sums").mkdir()
    (tmp_path / "sums" / "train.jsonl").write_text('{"question": "1+1?", "answer": "02"}\n')
    cli.main(["data", "check", str(tmp_path / "sums")])
    assert "sums: 1 row, 1 problem\n" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="absent"):
        cli.main(["data", "check", str(tmp_path / "sums"), "--tokenizer", str(tmp_path / "absent")])


def test_lengths_are_those_of_the_mode_that_is_trained(tmp_path, capsys):
    file = tmp_path / "made.jsonl"
    file.write_text('{"question": "1+1?", "answer": "2"}\n')
    build_byte_tokenizer("qwen3").save_pretrained(tmp_path / "tokenizer")
    command = ["data", "check", str(file), "--tokenizer", str(tmp_path / "tokenizer")]
    lengths = []
    for more in ([], ["--chat_template_kwargs", '{"enable_thinking": false}']):
        cli.main([*command, *more])
        lengths.append(int(re.search(r"longest (\d+)", capsys.readouterr().out)[1]))
    assert lengths[1] - lengths[0] == len("<think>\n\n</think>\n\n")
    with pytest.raises(SystemExit, match="'enable_thinkin', but the chat template does not use it"):
        cli.main([*command, "--chat_template_kwargs", '{"enable_thinkin": false}'])
    for wrong in ("[1]", "enable_thinking=false", "[" * 100_000):
        with pytest.raises(SystemExit):
            cli.main([*command, "--chat_template_kwargs", wrong])
        assert "expected JSON such as '{\"enable_thinking\": false}', got" in capsys.readouterr().err
