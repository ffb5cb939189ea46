"""Silenced tokens as a table: in the console, and in wandb, trackio and TensorBoard where they are active."""

import html

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from .text import show_alternatives, show_text, show_token


MAX_ROWS = 50
COLUMNS = ("step", "token", "silenced", "prob", "entropy", "advantage", "before", "after", "alternatives")


def show_tokens(trainer) -> None:
    """
    Show the candidates logged since the last log entry: in the console with `log_completions`, and in each tracker.

    Args:
        trainer ([`STAPOTrainer`]):
            Its token log is shown; call it on the main process.
    """
    since = trainer.state.global_step - trainer.state.logging_steps
    rows = [tabulate(row) for row in trainer.token_log.recent if row["step"] > since and row["candidate"]]
    if not rows:
        return
    if trainer.log_completions:
        print_tokens(rows)
    for tracker in trainer.args.report_to or []:
        if tracker in ("wandb", "trackio"):
            log_table(tracker, rows)
        elif tracker == "tensorboard":
            log_text(trainer, rows)


def tabulate(row: dict) -> dict[str, str | int]:
    """A row of the token log as text that shows white space and control characters, one entry for each of `COLUMNS`."""
    return {
        "step": row["step"],
        "token": show_token(row["token"]),
        "silenced": "yes" if row["silenced"] else "no",
        "prob": f"{100 * row['prob']:.4f} %",
        "entropy": f"{row['entropy']:.3f}",
        "advantage": f"{row['advantage']:.2f}",
        "before": show_text(row["before"]),
        "after": show_text(row["after"]),
        "alternatives": show_alternatives(row.get("top_tokens"), row.get("top_probs")),
    }


def print_tokens(rows: list[dict]) -> None:
    table = Table(title=f"Improbable tokens of correct responses, up to step {rows[-1]['step']}")
    for column in COLUMNS:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(escape(str(row[column])) for column in COLUMNS))
    Console().print(table)


def log_table(tracker: str, rows: list[dict]) -> None:
    """To wandb or trackio, whose tables are made in the same way."""
    import pandas as pd

    module = __import__(tracker)
    if tracker == "wandb" and module.run is None:
        return
    module.log({"s2t/tokens": module.Table(dataframe=pd.DataFrame(rows, columns=list(COLUMNS)))})


def log_text(trainer, rows: list[dict]) -> None:
    """To TensorBoard, which has no tables but shows Markdown."""
    lines = [COLUMNS, ["---"] * len(COLUMNS)] + [[row[column] for column in COLUMNS] for row in rows]
    text = "\n".join("| " + " | ".join(markdown(str(cell)) for cell in line) + " |" for line in lines)
    for callback in trainer.callback_handler.callbacks:
        if getattr(callback, "tb_writer", None) is not None:
            callback.tb_writer.add_text("s2t/tokens", text, trainer.state.global_step)


def markdown(cell: str) -> str:
    """A cell whose own characters cannot end it or become markup."""
    cell = html.escape(cell)
    return "".join(f"&#{ord(char)};" if char in r"|*_`[]\~#" else char for char in cell)
