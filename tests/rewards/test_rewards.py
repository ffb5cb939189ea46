import importlib

import pytest

from stapo_trl import rewards


@pytest.mark.parametrize("name", rewards.__all__)
def test_every_name_resolves_and_is_listed(name):
    assert getattr(rewards, name).__name__ == name
    assert name in dir(rewards)
    assert getattr(importlib.import_module("stapo_trl.rewards"), name) is getattr(rewards, name)


def test_unknown_name_says_what_there_is():
    with pytest.raises(AttributeError, match="math_accuracy_reward"):
        _ = rewards.accuracy
