import pytest

from stapo_trl import rewards


def test_every_public_name_resolves_and_is_listed():
    assert [getattr(rewards, name).__name__ for name in rewards.__all__] == rewards.__all__ == dir(rewards)


def test_unknown_name_says_what_there_is():
    with pytest.raises(AttributeError, match="math_accuracy_reward"):
        _ = rewards.accuracy
