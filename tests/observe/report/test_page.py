"""The page holds what the folders hold, within its limits, and no text of a model becomes markup or code."""

import json
import re
import sys
from html import unescape
from html.parser import HTMLParser

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from made_up_runs import HOSTILE, write_metrics, write_run, write_tokens

from stapo_trl import cli
from stapo_trl.observe.report import build_report, tables
from stapo_trl.observe.report.load import Run, load_runs
from stapo_trl.observe.report.page import list_settings
from stapo_trl.observe.text import show_token


def data_of(html: str) -> dict:
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', html, re.DOTALL)[1])


def read_report(path) -> tuple[str, dict]:
    html = path.read_text()
    return html, data_of(html)


def list_elements(html: str) -> list[tuple[str, dict]]:
    elements = []
    parser = HTMLParser()
    parser.handle_starttag = parser.handle_startendtag = lambda tag, attributes: elements.append(
        (tag, dict(attributes))
    )
    parser.feed(html)
    return elements


def test_a_report_is_one_file_and_its_figures(tmp_path):
    path = build_report([write_run(tmp_path / "run")])
    assert path == tmp_path / "run" / "report" / "report.html"
    names = ["curves", "gradient-norms", "scatter", "silenced-token", "words-kept", "words-silenced"]
    expected = ["report.html", *(f"{name}.{ending}" for name in names for ending in ("png", "svg"))]
    assert sorted(file.name for file in path.parent.iterdir()) == sorted(expected)
    for svg in path.parent.glob("*.svg"):
        assert svg.read_text().rstrip().endswith("</svg>")


def test_hostile_text_is_data_everywhere(tmp_path):
    run = write_run(tmp_path / "<img src=x onerror=alert(6)>", num_tokens=len(HOSTILE) * 40, texts=HOSTILE)
    html, data = read_report(build_report([run], tmp_path / "report"))
    block = re.search(r'id="data">(.*?)</script>', html, re.DOTALL)[1]
    assert not set("<>&") & set(block) and block.isascii()
    elements = list_elements(html)
    assert [tag for tag, _ in elements].count("script") == 2 and "img" not in dict(elements)
    assert not [name for _, attributes in elements for name in attributes if name.startswith("on")]
    assert {row[3] for row in data["spurious"]} == {show_token(token) for token in HOSTILE}
    assert "<script>alert(1)</script>" in {token for row in data["completions"] for token in row["tokens"]}


def test_the_policy_allows_this_script_and_no_network(tmp_path):
    html, _ = read_report(build_report([write_run(tmp_path / "run")]))
    policy = unescape(re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', html)[1]).split("; ")
    assert policy[0] == "default-src 'none'" and re.fullmatch(r"script-src 'sha256-[\w+/=]+'", policy[1])
    assert not [rule for rule in policy if "http" in rule or "*" in rule]
    links = [
        value for _, attributes in list_elements(html) for name, value in attributes.items() if name in ("src", "href")
    ]
    assert all(link.startswith("data:") for link in links)


def test_rows_are_limited_and_their_total_is_given(tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "MAX_ROWS", 20)
    run = write_run(tmp_path / "run", num_tokens=300)
    total = load_runs([run])[0].tokens["silenced"].to_pylist().count(True)
    html, data = read_report(build_report([run]))
    assert len(data["spurious"]) == 20 and f"A random sample of 20 of the {total} tokens" in html


def test_long_completions_are_cut_and_say_so(tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "MAX_COMPLETION_TOKENS", 200)  # of 6 completions with 120 tokens each
    _, data = read_report(build_report([write_run(tmp_path / "run")]))
    assert [(len(row["tokens"]), row["cut"]) for row in data["completions"]] == [(120, False), (80, True)]


def test_a_row_of_the_table_reads_as_in_the_paper(tmp_path):
    run = write_run(tmp_path / "run")
    _, data = read_report(build_report([run]))
    first = next(row for row in load_runs([run])[0].tokens.to_pylist() if row["silenced"])
    _, step, before, token, after, prob, advantage, entropy, norm, top, edited = data["spurious"][0]
    assert (step, token) == (first["step"], show_token(first["token"]))
    assert prob == pytest.approx(100 * first["prob"], rel=1e-3) and advantage == pytest.approx(0.54)
    assert top.split(" | ")[0].endswith("(99.95%)") and top.count(" | ") == 4


def test_columns_that_were_not_logged_are_left_blank(tmp_path):
    write_tokens(tmp_path, {"step": [3], "token": ["x"], "silenced": [True]})
    _, data = read_report(build_report([tmp_path]))
    assert data["spurious"] == [[0, 3, "", "x", "", None, None, None, None, "", None]] and data["scatters"] == []


def test_the_settings_are_given_without_a_path_of_this_machine(tmp_path):
    html, _ = read_report(build_report([write_run(tmp_path / "run")]))
    assert "model made-up · τp 0.002 · q 0.75 · selection low_entropy" in html and str(tmp_path) not in html
    run = Run("run", pd.DataFrame(), None, None, {"model": str(tmp_path / "checkpoint")})
    assert list_settings(run) == "model checkpoint"


def test_a_run_of_plain_GRPO_says_what_is_missing(tmp_path):
    (tmp_path / "run").mkdir()
    write_metrics(tmp_path / "run", num_steps=4)
    html, data = read_report(build_report([tmp_path / "run"]))
    assert len(data["panels"]) == 6 and data["spurious"] == data["scatters"] == data["completions"] == []
    assert (
        "No token log: train with STAPOTrainer" in html and "stapo score" in html and "Silenced tokens in" not in html
    )


def test_a_run_without_metrics_is_reported(tmp_path):
    run = write_run(tmp_path / "run")
    (run / "metrics.jsonl").unlink()
    html, data = read_report(build_report([run]))
    assert data["panels"] == [] and len(data["scatters"]) == 1 and "No metrics.jsonl" in html


def rewrite_tokens(run, change):
    """Replace the token log of a made-up run by what `change` makes of its rows."""
    (shard,) = (run / "token_log").glob("tokens-*")
    table = pq.read_table(shard)
    pq.write_table(pa.Table.from_pylist(change(table.to_pylist()), table.schema), shard)


def test_a_run_without_spurious_tokens_says_so(tmp_path):
    run = write_run(tmp_path / "run")
    rewrite_tokens(run, lambda rows: [row | {"candidate": False} for row in rows if not row["silenced"]])
    html, data = read_report(build_report([run]))
    assert data["spurious"] == [] and "The log holds no spurious token." in html


def test_tokens_with_an_edited_advantage_are_shown_with_it(tmp_path):
    def edit(rows):
        for index, row in enumerate(rows):
            row |= {"silenced": False, "edited_advantage": row["advantage"] * (1.1 if index % 10 == 0 else 1.0)}
        return rows

    run = write_run(tmp_path / "run")
    rewrite_tokens(run, edit)
    html, data = read_report(build_report([run]))
    num_changed = len(
        [1 for row in load_runs([run])[0].tokens.to_pylist() if row["edited_advantage"] != row["advantage"]]
    )
    assert 0 < num_changed == len(data["spurious"]) and "Edited tokens in context" in html
    assert all(row[10] == pytest.approx(1.1 * row[6], rel=1e-2) for row in data["spurious"])


def test_a_run_that_silences_nothing_shows_what_stapo_would_have_silenced(tmp_path):
    grpo, stapo = write_run(tmp_path / "grpo"), write_run(tmp_path / "stapo")
    rewrite_tokens(grpo, lambda rows: [row | {"silenced": False} for row in rows])
    would_be = [
        row["step"]
        for row in load_runs([grpo])[0].tokens.to_pylist()
        if row["candidate"] and row["entropy"] < row["entropy_threshold"]
    ]
    html, data = read_report(build_report([grpo, stapo]))
    shown = [row[1] for row in data["spurious"] if row[0] == 0]
    assert shown == would_be and any(row[0] == 1 for row in data["spurious"])
    assert "Spurious tokens in context" in html and "grpo silenced nothing" in html


def test_the_command_reports_several_runs_and_refuses_an_empty_folder(tmp_path, capsys):
    runs = [str(write_run(tmp_path / name, seed=seed)) for seed, name in enumerate("ab")]
    cli.main(["report", *runs, "--output", str(tmp_path / "both")])
    assert "report.html" in capsys.readouterr().out
    assert data_of((tmp_path / "both" / "report.html").read_text())["runs"] == ["a", "b"]
    with pytest.raises(SystemExit) as exit:
        cli.main(["report", str(tmp_path)])
    assert exit.value.code == 1 and "Nothing to report" in capsys.readouterr().err


def test_a_missing_extra_is_named(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "stapo_trl.observe.report", None)
    with pytest.raises(SystemExit):
        cli.main(["report", str(tmp_path)])
    assert 'pip install "stapo-trl[report]"' in capsys.readouterr().err


def test_a_token_of_100_kB_does_not_fill_the_page(tmp_path):
    run = write_run(tmp_path / "run", num_tokens=40, num_completions=2, texts=["x" * 100_000] * 5)
    html, data = read_report(build_report([run]))
    assert len(html) < 1e6 and {row[3] for row in data["spurious"]} == {"x" * 80 + "…"}


def test_a_name_without_glyphs_is_drawn_without_a_warning(tmp_path, recwarn):
    build_report([write_run(tmp_path / "\U0001f9ea你好", num_tokens=20)])
    assert not [str(warning.message) for warning in recwarn if "Glyph" in str(warning.message)]


def test_an_output_that_cannot_be_written_is_named(tmp_path, capsys):
    write_metrics(tmp_path, num_steps=2)
    (tmp_path / "file").touch()
    (tmp_path / "folder" / "report.html").mkdir(parents=True)
    for output in ("file", "folder"):
        with pytest.raises(SystemExit, match="1"):
            cli.main(["report", str(tmp_path), "--output", str(tmp_path / output)])
        assert str(tmp_path / output) in capsys.readouterr().err
