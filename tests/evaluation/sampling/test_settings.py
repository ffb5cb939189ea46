import pytest

from stapo_trl.evaluation.sampling.settings import PAPER_DECODINGS, SamplingSettings


def test_values_out_of_range_are_refused_by_name():
    wrong = [("temperature", -1), ("temperature", float("nan")), ("top_p", 0), ("top_p", 1.1), ("max_new_tokens", 0)]
    for name, value in wrong:
        with pytest.raises(ValueError, match=f"`{name}` must be .*got {value}"):
            SamplingSettings(**{name: value})


def test_greedy_decoding_is_asked_once():
    SamplingSettings(0.0).check_n(1)
    with pytest.raises(ValueError, match="n=1"):
        SamplingSettings(0.0).check_n(8)
    with pytest.raises(ValueError, match="at least 1"):
        SamplingSettings().check_n(0)


def test_the_papers_decodings():
    assert [(each.temperature, each.top_p, each.max_new_tokens) for each in PAPER_DECODINGS] == [
        (1.0, 1.0, 20480),
        (0.7, 0.9, 20480),
    ]
    assert [each.label for each in PAPER_DECODINGS] == ["t1.0-p1.0", "t0.7-p0.9"]
