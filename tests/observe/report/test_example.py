"""The picture of one token shows the token, its context and alternatives, and survives any text and missing values."""

import numpy as np
import pytest
from made_up_runs import HOSTILE, write_tokens
from matplotlib.colors import to_hex

from stapo_trl.observe.report.example import draw_example, find_example
from stapo_trl.observe.report.load import load_runs
from stapo_trl.observe.report.style import SILENCED, save, styled


ROW = {
    "step": 123,
    "token": "7",
    "before": "5+4=9;",
    "after": "+2=11",
    "prob": 2e-4,
    "entropy": 0.0105,
    "entropy_threshold": 0.052,
    "advantage": 0.354,
    "gradient_norm": 0.5,
    "candidate": True,
    "silenced": True,
    "top_tokens": ["9", "8", "7"],
    "top_probs": [0.9989, 0.0004, 0.0002],
}


def texts_of(row, **options) -> list[str]:
    (axes,) = draw_example(row, **options).axes
    return [text.get_text() for text in axes.texts]


def bars_of(row) -> list[tuple[str, float]]:
    """Colour and width of each bar."""
    (axes,) = draw_example(row).axes
    return [(to_hex(box.get_facecolor()), box.get_width()) for box in axes.patches if box.get_height() == 11]


def write_log(folder, **columns):
    write_tokens(folder, columns)
    return load_runs([folder])[0]


def test_token_context_alternatives_and_numbers_are_written():
    texts = texts_of(ROW, prob_threshold=0.002)
    for expected in ("A token that STAPO silenced", "step 123", "5+4=9;", "+2=11", "99.89 %", "0.04 %", "+0.354"):
        assert expected in texts, expected
    assert "τp = 0.2 %" in texts and "τh = 0.052" in texts
    assert texts.count("7") == 2  # in the context, and once among the alternatives
    assert "A token that STAPO would have silenced" in texts_of(ROW | {"silenced": False})
    assert "The token rule of this run leaves it out of the loss." in texts_of(ROW | {"candidate": False})


def test_a_bar_is_as_long_as_its_probability_and_the_sampled_one_has_the_colour():
    bars = bars_of(ROW | {"top_probs": [0.75, 0.25, 0.0]})
    assert [color == SILENCED for color, _ in bars] == [False, False, True]
    assert bars[0][1] == pytest.approx(3 * bars[1][1]) and bars[2][1] == 1.0  # a hair line can still be seen
    others = bars_of(ROW | {"top_tokens": ["9", "8"], "top_probs": [0.5, 0.5]})
    assert [color == SILENCED for color, _ in others] == [False, False, True]  # no alternative, so a bar of its own


def test_the_example_has_the_largest_gradient_of_those_with_alternatives(tmp_path):
    run = write_log(
        tmp_path / "stapo",
        step=[1, 2, 3, 4, 5],
        token=list("abcde"),
        silenced=[True, True, True, True, False],
        gradient_norm=[1.0, 2.0, 9.0, float("nan"), 9.0],
        top_tokens=[["x"], ["x"], None, ["x"], ["x"]],
    )
    assert find_example(run)["token"] == "b"
    assert find_example(write_log(tmp_path / "old", step=[1], token=["a"], silenced=[True]))["token"] == "a"
    assert find_example(write_log(tmp_path / "none", step=[1], token=["a"], silenced=[False])) is None
    columns = {"candidate": [True, True], "entropy": [0.1, 0.9], "entropy_threshold": [0.5, 0.5]}
    grpo = write_log(tmp_path / "grpo", step=[1, 1], token=["a", "b"], silenced=[False, False], **columns)
    assert find_example(grpo)["token"] == "a" and not find_example(grpo)["silenced"]


def test_any_text_and_any_missing_value_is_drawn_within_the_card(tmp_path, recwarn):
    odd = [*HOSTILE, "", "\ud800", "سلام", "你好" * 60, "$x_1$", r"$\frac", "W" * 100_000, "a\u0301", None]
    rows = [
        ROW
        | {"token": text, "before": text and text * 3, "after": text, "top_tokens": [text] * 7, "top_probs": [0.1] * 7}
        for text in odd
    ]
    rows += [ROW | {"top_tokens": [None, "x"], "top_probs": [float("nan"), None]}, dict.fromkeys(ROW)]
    rows += [{name: float("nan") if isinstance(value, float) else value for name, value in ROW.items()}]
    measure = styled(lambda text: text.get_window_extent())  # quiet about glyphs, as drawing is
    outside = []
    for index, row in enumerate(rows):
        figure = draw_example(row, prob_threshold=None)
        for ending in ("png", "svg"):
            save(figure, tmp_path / f"{index}.{ending}")
        (axes,) = figure.axes
        frame = axes.get_window_extent()
        boxes = [measure(text) for text in axes.texts if text.get_text()]
        if not all(box.x0 >= frame.x0 and box.x1 <= frame.x1 and np.isfinite(box.extents).all() for box in boxes):
            outside.append(row)
    assert not outside
    assert not [str(warning.message) for warning in recwarn if "Glyph" in str(warning.message)]
    assert "What the policy would rather have written was not logged" in texts_of(ROW | {"top_tokens": None})
