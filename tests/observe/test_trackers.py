"""The table of tokens reaches the console and each tracker, and model text stays text in all of them."""

import sys
import types

import pandas as pd
import pytest

from stapo_trl.observe.trackers import COLUMNS, markdown, print_tokens, show_tokens, tabulate


ROW = {
    "step": 3,
    "token": "[bold]\n",
    "silenced": True,
    "prob": 0.000142,
    "entropy": 0.25,
    "advantage": 0.54,
    "before": "a | b",
    "after": "<script>",
    "top_tokens": ["1", "\t"],
    "top_probs": [0.9995, 0.0001],
}


def test_a_row_reads_as_in_the_papers_tables():
    row = tabulate(ROW)
    assert row["prob"] == "0.0142 %" and row["advantage"] == "0.54" and row["token"] == "[bold]↵"
    assert row["alternatives"] == "1(99.95%) | ⇥(0.01%)"
    assert tabulate(ROW | {"top_tokens": None, "top_probs": None})["alternatives"] == ""


def test_the_console_shows_markup_as_text(capsys):
    print_tokens([tabulate(ROW)])
    printed = capsys.readouterr().out
    assert "up to step 3" in printed and "[bol" in printed


def test_a_cell_of_markdown_cannot_leave_its_cell():
    cell = markdown("a | b\\ <script> **x** [l](u)")
    assert not set("|<>*[\\") & set(cell) and "&lt;script&gt;" in cell


@pytest.fixture
def trained(make_trainer):
    trainer = make_trainer(token_stats_steps=1)
    trainer.train()
    return trainer


@pytest.mark.parametrize("tracker", ["wandb", "trackio"])
def test_trackers_get_a_table_of_the_steps_since_the_last_entry(trained, monkeypatch, tracker):
    logged = []
    module = types.SimpleNamespace(run=True, log=logged.append, Table=lambda dataframe: dataframe)
    monkeypatch.setitem(sys.modules, tracker, module)
    trained.args.report_to = [tracker]
    show_tokens(trained)
    frame = logged[0]["s2t/tokens"]
    assert isinstance(frame, pd.DataFrame) and list(frame.columns) == list(COLUMNS)
    assert "yes" in set(frame.silenced) and set(frame.step) == {2}


def test_wandb_without_a_run_gets_nothing(trained, monkeypatch):
    module = types.SimpleNamespace(run=None, log=lambda values: pytest.fail("logged without a run"))
    monkeypatch.setitem(sys.modules, "wandb", module)
    trained.args.report_to = ["wandb"]
    show_tokens(trained)


def test_tensorboard_gets_markdown(trained):
    texts = []
    writer = types.SimpleNamespace(add_text=lambda *arguments: texts.append(arguments))
    trained.callback_handler.callbacks.append(types.SimpleNamespace(tb_writer=writer))
    trained.args.report_to = ["tensorboard"]
    show_tokens(trained)
    ((name, text, step),) = texts
    assert (
        (name, step) == ("s2t/tokens", 2) and text.startswith("| step | token | silenced |") and text.count("\n") > 2
    )


def test_the_console_shows_tokens_with_the_completions(make_trainer, capsys):
    make_trainer(log_completions=True).train()
    assert "Improbable tokens of correct responses" in capsys.readouterr().out
    make_trainer().train()
    assert "Improbable tokens" not in capsys.readouterr().out
