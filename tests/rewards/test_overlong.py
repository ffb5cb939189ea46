import logging
import pickle

import pytest

from stapo_trl.rewards import get_soft_overlong_punishment, warn_if_void


def test_punishment_follows_equation_13():
    # max 100, cache 20: (80 - 81) / 20 = -0.05, (80 - 90) / 20 = -0.5
    punish = get_soft_overlong_punishment(100, 20)
    assert punish(completion_ids=[[1] * n for n in (0, 80, 81, 90, 100, 101)]) == [0.0, 0.0, -0.05, -0.5, -1.0, -1.0]


def test_cache_of_zero_is_a_step():
    assert get_soft_overlong_punishment(100, 0)(completion_ids=[[1] * 100, [1] * 101]) == [0.0, -1.0]


def test_length_is_in_tokens_not_in_messages():
    punish = pickle.loads(pickle.dumps(get_soft_overlong_punishment(100, 20)))
    assert punish(completions=[[{"role": "assistant", "content": "a"}]], completion_ids=[[1] * 101]) == [-1.0]


def test_contradictory_lengths_are_refused():
    for maximum, cache in ((100, 101), (100, -1), (0, 0)):
        with pytest.raises(ValueError, match="max_completion_len"):
            get_soft_overlong_punishment(maximum, cache)


def test_warns_where_masking_makes_it_void(caplog):
    punish = get_soft_overlong_punishment(100, 20)
    with caplog.at_level(logging.WARNING):
        assert not warn_if_void([punish], False) and not warn_if_void([print], True)
        assert not caplog.records
        get_soft_overlong_punishment(100, 20, mask_truncated_completions=True)
        assert warn_if_void([print, punish], True)
    assert len(caplog.records) == 2
