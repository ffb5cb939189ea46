"""The table of quadrants averages what was logged."""

import json

import numpy as np
import pandas as pd
import pytest

from stapo_trl.observe.report.load import load_runs
from stapo_trl.observe.report.quadrants import average_quadrants, format_quadrants


def test_the_gradient_norm_of_a_quadrant_is_weighted_by_its_tokens(tmp_path):
    name = "s2t/positive/low_prob_low_entropy"
    entries = [{"step": 1, f"{name}/share": 0.3, f"{name}/gradient_norm": 1.0}]
    entries += [{"step": 2, f"{name}/share": 0.1, f"{name}/gradient_norm": 2.0}, {"step": 3, f"{name}/share": 0.0}]
    (tmp_path / "metrics.jsonl").write_text("\n".join(map(json.dumps, entries)))
    row = average_quadrants(load_runs([tmp_path])[0]).loc["low_prob_low_entropy"]
    assert row.gradient_norm == pytest.approx(0.3 / 0.4 * 1.0 + 0.1 / 0.4 * 2.0) and row.share == pytest.approx(
        0.4 / 3
    )


def test_what_was_not_logged_is_a_dash():
    row = {"share": 0.25, "gradient_norm": np.nan, "gradient_share": 0.5, "entropy_change": -0.0123}
    table = format_quadrants(pd.DataFrame.from_dict({"low_prob_low_entropy": row}, orient="index"))
    assert table == [("low probability, low entropy", "25 %", "–", "50 %", "−0.012")]
