import csv
import json
from pathlib import Path

import pytest
from toys import build_byte_model, build_byte_tokenizer

from stapo_trl import cli
from stapo_trl.cli import evaluate as command
from stapo_trl.evaluation.result import rows_of, to_csv, to_markdown


def run(*arguments):
    cli.main(["evaluate", "--backend", "transformers", "--max_new_tokens", "8", *map(str, arguments)])


def test_a_table_on_the_terminal_and_three_files(saved, tmp_path, capsys):
    run("--model", saved, "--benchmarks", "arithmetic", "--size", 4, "--n", 3, "--output_dir", tmp_path / "out")
    printed = capsys.readouterr().out
    assert "avg@n" in printed and "no answer" in printed and "t0.7-p0.9" in printed
    assert max(map(len, printed.splitlines())) <= max(80, len(str(tmp_path)) + 40)
    result = json.loads((tmp_path / "out" / "t0.7-p0.9.json").read_text())
    (row,) = csv.DictReader(open(tmp_path / "out" / "t0.7-p0.9.csv"))
    assert row["avg@n"] == f"{100 * result['overall']['accuracy']:.2f}" and row["n"] == "3" and row["problems"] == "4"
    assert "| arithmetic | 4 | 3 |" in (tmp_path / "out" / "t0.7-p0.9.md").read_text()


def test_the_papers_protocol_is_both_decodings_and_its_n(monkeypatch, saved, tmp_path):
    calls = []

    def recorded(sampler, names, n, settings, output_dir, **options):
        calls.append((names, n, settings))
        return {"model": "m", "decoding": settings.label, "warnings": [], "benchmarks": {}}

    monkeypatch.setattr(command, "evaluate", recorded)
    monkeypatch.setattr(command, "show", lambda console, result: None)
    cli.main(["evaluate", "--model", saved, "--protocol", "paper", "--output_dir", str(tmp_path)])
    assert [(s.temperature, s.top_p, s.max_new_tokens) for _, _, s in calls] == [(1.0, 1.0, 20480), (0.7, 0.9, 20480)]
    for names, n, _ in calls:
        assert names == ["aime24", "aime25", "amc23", "math500", "minerva", "olympiadbench"]
        assert [n[name] for name in names] == [32, 32, 32, 4, 4, 4]


def test_contradictions_are_refused_in_a_sentence(saved, tmp_path):
    cases = [
        (["--benchmarks", "aime"], "There is no benchmark 'aime'"),
        (["--benchmarks", "arithmetic", "--temperature", "0", "--n", "8"], "temperature 0"),
        (["--benchmarks", "arithmetic,arithmetic"], "each once"),
        (["--benchmarks", "arithmetic", "--top_p", "2"], "`top_p`"),
        (["--benchmarks", "arithmetic", "--size", 0], "`size` must be at least 1, got 0"),
        (["--benchmarks", "arithmetic", "--model", tmp_path / "none"], "is neither a folder"),
    ]
    for arguments, message in cases:
        with pytest.raises(SystemExit, match=f"^stapo evaluate: .*{message}"):
            run("--model", saved, "--output_dir", tmp_path / "out", *arguments)
        assert not (tmp_path / "out").exists()


def test_the_protocol_and_its_own_settings_exclude_each_other(saved, capsys):
    with pytest.raises(SystemExit):
        run("--model", saved, "--protocol", "paper", "--n", 2)
    assert "sets --n" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        run("--model", saved)
    assert "--protocol paper for all six" in capsys.readouterr().err


def test_an_output_folder_that_is_a_file_is_refused_in_a_sentence(saved, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(SystemExit, match="stapo evaluate: .*file"):
        run("--model", saved, "--benchmarks", "arithmetic", "--size", 1, "--output_dir", tmp_path / "file")


def test_the_judge_comes_after_all_samples(saved, tmp_path, monkeypatch, capsys):
    class Judge:
        def __init__(self, model, backend):
            self.model = model

        def __call__(self, questions, golds, responses):
            return ["A"] * len(questions)

    monkeypatch.setattr(command, "LLMJudge", Judge)
    out = tmp_path / "out"
    options = ["--benchmarks", "arithmetic", "--size", 3, "--n", 2, "--judge", "some/judge"]
    run("--model", saved, *options, "--output_dir", out)
    result = json.loads((out / "t0.7-p0.9.json").read_text())
    assert result["judge"] == "some/judge" and result["overall"]["judged"] > 0.5


def test_names_from_files_break_no_table(saved, tmp_path, capsys):
    path = tmp_path / "[red]a|b.jsonl"
    row = {"prompt": "1+1=?", "solution": "2", "problem_id": "one", "source": "mine"}
    path.write_text(json.dumps(row))
    run("--model", saved, "--benchmarks", path, "--n", 1, "--output_dir", tmp_path / "out")
    assert "[red]a|b" in capsys.readouterr().out
    result = json.loads(next(Path(tmp_path / "out").glob("*.json")).read_text())
    assert r"| [red]a\|b |" in to_markdown(result) and "[red]a|b" in to_csv(result)
    assert len(rows_of(result)) == 1


def test_the_mode_of_the_chat_template_and_dropped_rows_are_options(tmp_path):
    tokenizer = build_byte_tokenizer("qwen3")
    build_byte_model(tokenizer).save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    path = tmp_path / "own.jsonl"
    path.write_text('{"problem": "1+1?", "answer": "2"}\n{"problem": "2+2?", "answer": ""}\n')
    command = ["--model", tmp_path / "model", "--benchmarks", path, "--n", 1, "--output_dir", tmp_path / "out"]
    with pytest.raises(SystemExit, match="drop them with unusable='drop'"):
        run(*command)
    run(*command, "--unusable", "drop", "--chat_template_kwargs", '{"enable_thinking": false}')
    result = json.loads((tmp_path / "out" / "t0.7-p0.9.json").read_text())
    assert result["chat_template_kwargs"] == {"enable_thinking": False}
    assert result["benchmarks"]["own"]["dropped"] == 1
    assert "own: 1 of 2 rows" in (tmp_path / "out" / "t0.7-p0.9.md").read_text()
