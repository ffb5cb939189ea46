"""Rows of the page's table of spurious tokens, and completions for its viewer, from the token log."""

import numpy as np
import pyarrow.compute as pc

from ...rules.tokens import MIN_ADVANTAGE
from ..text import shorten, show_alternatives, show_text, show_token
from .load import Run


MAX_ROWS = 5000  # of the table of spurious tokens
MAX_COMPLETIONS, MAX_COMPLETION_TOKENS = 40, 120_000
CONTEXT = 48  # characters of context shown on each side of a token


def find_spurious(run: Run) -> tuple[np.ndarray, bool]:
    """
    Indices in the token log of the silenced tokens and of those with an edited advantage, or of those that STAPO would
    have silenced if there are none; and whether these tokens were silenced or edited.
    """
    change = pc.abs(pc.subtract(run.tokens["edited_advantage"], run.tokens["advantage"]))
    touched = pc.or_(
        pc.fill_null(run.tokens["silenced"], False), pc.fill_null(pc.greater(change, MIN_ADVANTAGE), False)
    )
    if pc.any(touched).as_py():
        return np.flatnonzero(touched), True
    is_low = pc.less(run.tokens["entropy"], run.tokens["entropy_threshold"])
    return np.flatnonzero(pc.fill_null(pc.and_(run.tokens["candidate"], is_low), False)), False


def list_spurious(runs: list[Run]) -> tuple[list[list], int]:
    """Spurious tokens, or a random sample of `MAX_ROWS` of them, and how many there are in all runs."""
    rows, total = [], 0
    for index, run in enumerate(runs):
        chosen, _ = find_spurious(run)
        total += len(chosen)
        most = MAX_ROWS // len(runs)
        if len(chosen) > most:
            chosen = np.sort(np.random.default_rng(0).choice(chosen, most, replace=False))
        for row in run.tokens.take(chosen).to_pylist():
            rows.append(
                [
                    index,
                    row["step"],
                    show_text((row["before"] or "")[-CONTEXT:]),
                    show_token(row["token"] or ""),
                    show_text((row["after"] or "")[:CONTEXT]),
                    None if row["prob"] is None else round_number(100 * row["prob"]),
                    round_number(row["advantage"]),
                    round_number(row["entropy"]),
                    round_number(row["gradient_norm"]),
                    show_alternatives(row["top_tokens"], row["top_probs"]),
                    round_number(row["edited_advantage"]),
                ]
            )
    return rows, total


def list_completions(runs: list[Run]) -> list[dict]:
    """Completions with most silenced tokens first, within `MAX_COMPLETION_TOKENS`."""
    chosen = []
    for index, run in enumerate(runs):
        if not run.completions.num_rows:
            continue
        flags = run.completions.select(["silenced"]).to_pandas()["silenced"]
        counts = flags.map(lambda values: 0 if values is None else int(sum(map(bool, values))))
        best = counts.sort_values(ascending=False, kind="stable").index[: MAX_COMPLETIONS // len(runs)]
        room = MAX_COMPLETION_TOKENS // len(runs)
        for row in run.completions.take(best.to_numpy()).to_pylist():
            tokens = [token or "" for token in row["tokens"] or []][:room]
            room -= len(tokens)
            if not tokens:
                continue
            chosen.append(
                {
                    "run": index,
                    "step": row["step"],
                    "problem": show_text(row["problem_id"] or ""),
                    "prompt": show_text(row["prompt"] or ""),
                    "reward": round_number(row["reward"]),
                    "advantage": round_number(row["advantage"]),
                    "cut": len(tokens) < len(row["tokens"]),
                    "tokens": [show_text(shorten(token)) if token.strip() else show_token(token) for token in tokens],
                    "probs": [round_number(prob) for prob in (row["probs"] or [])[: len(tokens)]],
                    "entropies": [round_number(entropy) for entropy in (row["entropies"] or [])[: len(tokens)]],
                    "silenced": [place for place, flag in enumerate((row["silenced"] or [])[: len(tokens)]) if flag],
                }
            )
    return chosen


def round_number(value) -> float | None:
    """A number to four significant digits, `None` if it is not finite."""
    return float(f"{value:.4g}") if value is not None and np.isfinite(value) else None
