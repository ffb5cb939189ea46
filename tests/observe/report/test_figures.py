"""The figures show what they should: lines, points, thresholds, bars and tokens."""

import json

import numpy as np
import pandas as pd
import pytest
from made_up_runs import write_run, write_tokens
from matplotlib.figure import Figure

from stapo_trl.observe.files import MetricsFile
from stapo_trl.observe.report.curves import PANELS, draw_curves, draw_panel, draw_run, smooth
from stapo_trl.observe.report.load import load_runs
from stapo_trl.observe.report.scatter import LOWEST_PROB, draw_gradient_norms, draw_scatter, sample_tokens
from stapo_trl.observe.report.style import SILENCED, color_of_run
from stapo_trl.observe.report.word_cloud import count_tokens, draw_cloud


@pytest.fixture
def run(tmp_path):
    return load_runs([write_run(tmp_path / "run", num_steps=60, num_tokens=900)])[0]


def tokens_of(tmp_path, **columns):
    write_tokens(tmp_path, columns)
    return load_runs([tmp_path])[0]


def test_a_curve_shows_the_logged_values_and_their_moving_average(run):
    axes = Figure().subplots()
    entropy = run.series("s2t/entropy")
    draw_panel(axes, PANELS[2], [run])
    dots, line = axes.lines
    np.testing.assert_array_equal(dots.get_ydata(), entropy)
    # 60 points: averages of five, two on each side
    assert line.get_ydata()[30] == pytest.approx(entropy.iloc[28:33].mean())
    assert line.get_color() == color_of_run(0)


def test_short_curves_are_not_smoothed():
    values = pd.Series(np.arange(30.0) ** 2)
    assert smooth(values) is values


def test_shares_are_drawn_in_percent_and_silenced_ones_in_their_colour(run):
    axes = Figure().subplots()
    draw_panel(axes, PANELS[3], [run])
    silenced = [line for line in axes.lines if line.get_color() == SILENCED]
    np.testing.assert_allclose(silenced[0].get_ydata(), 100 * run.series("s2t/silenced_share"))


def test_a_panel_says_what_was_not_logged(tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "reward": 0.5}\n{"step": 2, "reward": 0.7}\n')
    figure = draw_curves(load_runs([tmp_path]))
    said = [[text.get_text() for text in axes.texts] for axes in figure.axes]
    assert said == [[]] + [["not logged"]] * 5


def test_the_picture_of_a_run_is_written_whole(tmp_path):
    path = draw_run(write_run(tmp_path / "run", num_steps=3))
    assert path == tmp_path / "run" / "metrics.png" and path.read_bytes().startswith(b"\x89PNG")
    assert sorted(file.name for file in path.parent.iterdir()) == ["metrics.jsonl", "metrics.png", "token_log"]


def test_silenced_tokens_are_sampled_first_for_the_scatter(run):
    sample = sample_tokens(run, limit=400)
    points = sample.points
    assert len(points) == 400 and points["silenced"].sum() == 200  # a half, though there are more
    assert (points["candidate"] & ~points["silenced"]).sum() == 100
    assert sample.prob_threshold == 0.002
    everything = sample_tokens(run, limit=10_000)
    assert everything.points["silenced"].sum() == run.tokens["silenced"].to_pylist().count(True)
    assert everything.num_tokens == len(everything.points) == sample.num_tokens


def test_tokens_without_a_positive_advantage_or_finite_numbers_are_no_points(tmp_path):
    run = tokens_of(
        tmp_path,
        step=[1] * 5,
        token=["a", "b", "c", "d", "e"],
        prob=[0.5, 0.5, float("nan"), 0.5, 0.0],
        entropy=[1.0, 1.0, 1.0, float("inf"), 0.0],
        advantage=[1.0, -1.0, 1.0, 1.0, 1.0],
        silenced=[False] * 5,
    )
    sample = sample_tokens(run, limit=100)
    assert sorted(sample.points["token"]) == ["a", "e"]
    axes = Figure().subplots()
    draw_scatter(axes, sample)
    assert axes.get_xlim()[0] == LOWEST_PROB  # where the token of probability zero is


def test_the_thresholds_are_drawn(run):
    axes = Figure().subplots()
    sample = sample_tokens(run, limit=100)
    draw_scatter(axes, sample)
    vertical, horizontal = axes.lines
    assert vertical.get_xdata()[0] == 0.002
    assert horizontal.get_ydata()[0] == pytest.approx(run.series("s2t/entropy_threshold").median())


def test_a_bar_is_the_mean_gradient_norm_of_its_quadrant(run, tmp_path):
    (axes,) = draw_gradient_norms([run]).axes
    assert [bar.get_height() for bar in axes.patches] == pytest.approx([0.2, 0.35, 0.7, 1.1])
    name = "s2t/positive/high_prob_low_entropy"
    (tmp_path / "metrics.jsonl").write_text(json.dumps({"step": 1, f"{name}/share": 0.5, f"{name}/gradient_norm": 3}))
    (axes,) = draw_gradient_norms(load_runs([tmp_path])).axes
    assert [text.get_text() for text in axes.texts] == ["none", "3", "none", "none"]


def test_silenced_and_kept_tokens_are_counted(tmp_path):
    run = tokens_of(
        tmp_path,
        step=[1] * 6,
        token=[" x", " x", "\n", "Wait", "the", ""],
        silenced=[True, True, True, False, False, True],
        candidate=[True, True, True, True, False, True],
    )
    assert count_tokens(run) == {"silenced": {"␣x": 2, "↵": 1, "⟨empty⟩": 1}, "kept": {"Wait": 1}}


def test_no_token_vanishes_from_a_word_cloud():
    counts = {"␣": 5, "↵": 4, "$x$": 3, "你好": 2, "🙂": 2, "⟨U+202E⟩": 1, "<b>": 1}
    (axes,) = draw_cloud(counts, SILENCED, "title").axes
    assert len(axes.patches) == len(counts)
    for patch in axes.patches:
        box = patch.get_path().get_extents()
        assert box.width > 0 and box.x0 >= -1 and box.x1 <= axes.get_xlim()[1] + 1 and box.y0 >= -1
    (axes,) = draw_cloud({}, SILENCED, "title").axes
    assert axes.texts[0].get_text() == "No such token in the log."


def test_the_picture_of_a_run_is_drawn_and_an_empty_one_has_none(make_trainer, tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="Nothing to report"):
        draw_run(tmp_path / "empty")
    make_trainer(callbacks=[MetricsFile()]).train()
    picture = draw_run(tmp_path / "run")
    assert picture.read_bytes().startswith(b"\x89PNG") and picture.stat().st_size > 10_000
