import numpy as np
import pandas as pd
from matplotlib.colors import to_hex

from stapo_trl.cli.experiment.figure import draw_bands
from stapo_trl.cli.experiment.settings import METHODS
from stapo_trl.observe.report.load import Run
from stapo_trl.observe.token_log import SCHEMAS


def make_run(name, reward):
    metrics = pd.DataFrame({"reward": reward}, index=pd.Index(range(1, len(reward) + 1), name="step"))
    return Run(name, metrics, *(SCHEMAS[table].empty_table() for table in ("tokens", "completions")), {})


def test_a_band_holds_all_seeds_around_their_mean():
    figure = draw_bands({"stapo": [make_run("a", [0.0, 1.0]), make_run("b", [1.0, 4.0])]})
    axes = figure.axes[0]
    assert axes.get_title(loc="left") == "Reward"
    np.testing.assert_allclose(axes.lines[0].get_ydata(), [0.5, 2.5])
    corners = axes.collections[0].get_paths()[0].vertices
    assert {tuple(corner) for corner in corners.tolist()} == {(1, 0), (1, 1), (2, 1), (2, 4)}


def test_every_method_has_a_line_of_its_own():
    figure = draw_bands({method: [make_run(method, [0.0, 1.0])] for method in METHODS})
    lines = figure.axes[0].lines
    assert len({(to_hex(line.get_color()), line.get_linestyle()) for line in lines}) == len(METHODS)


def test_metrics_that_nobody_logged_leave_an_empty_panel():
    figure = draw_bands({"grpo": [make_run("a", [0.0, 1.0])]})
    (axes,) = [axes for axes in figure.axes if axes.get_title(loc="left") == "Entropy"]
    assert not axes.lines
