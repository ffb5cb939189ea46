"""Tokens with a positive advantage by quadrant of probability and entropy: the paper's table, from a run's metrics."""

import numpy as np
import pandas as pd

from .load import Run


TITLES = {
    "high_prob_high_entropy": "high probability, high entropy",
    "high_prob_low_entropy": "high probability, low entropy",
    "low_prob_high_entropy": "low probability, high entropy",
    "low_prob_low_entropy": "low probability, low entropy",
}
COLUMNS = {
    "share": "Tokens, of all",
    "gradient_norm": "Gradient norm, mean",
    "gradient_share": "Gradient norms, of all",
    "entropy_change": "Entropy change, nats",
}


def average_quadrants(run: Run) -> pd.DataFrame:
    """A row for each quadrant that was logged: means over the steps, gradient norms weighted by the quadrant's tokens."""
    rows = {}
    for quadrant in TITLES:
        values = {column: run.series(f"s2t/positive/{quadrant}/{column}") for column in COLUMNS}
        if values["share"].empty:
            continue
        norm = values["gradient_norm"]
        weights = values["share"].reindex(norm.index).fillna(0.0)
        rows[quadrant] = {column: series.mean() for column, series in values.items()}
        rows[quadrant]["gradient_norm"] = (norm * weights).sum() / weights.sum() if weights.sum() > 0 else np.nan
    return pd.DataFrame.from_dict(rows, orient="index", columns=list(COLUMNS))


def format_quadrants(quadrants: pd.DataFrame) -> list[tuple[str, ...]]:
    """For each quadrant its title and the values of `COLUMNS`, as text."""

    def show(value: float, text: str) -> str:
        return "–" if pd.isna(value) else text.replace("-", "−")

    return [
        (
            TITLES[row.Index],
            show(row.share, f"{100 * row.share:.3g} %"),
            show(row.gradient_norm, f"{row.gradient_norm:.3g}"),
            show(row.gradient_share, f"{100 * row.gradient_share:.3g} %"),
            show(row.entropy_change, f"{row.entropy_change:+.2g}"),
        )
        for row in quadrants.itertuples()
    ]
