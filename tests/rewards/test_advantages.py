import math

import torch

from stapo_trl.rewards.advantages import have_spread


def test_equal_rewards_have_no_spread_whatever_their_value():
    for group_size in (2, 7, 8, 15):
        for value in (0.0, 0.1, 0.7, 1.1, -0.9, 1e6):
            assert not have_spread(torch.full((3 * group_size, 1), value), group_size).any(), (group_size, value)


def test_sums_that_are_equal_on_paper_have_no_spread():
    summed, written = torch.tensor(1.1) + torch.tensor(2.2), torch.tensor(3.3)
    assert summed != written
    assert not have_spread(torch.stack([summed, written, written, summed]).unsqueeze(1), 4).any()


def test_one_different_reward_is_a_spread_for_its_whole_group():
    rewards = torch.tensor([[1.0], [1.0], [1.001], [1.0], [0.5], [0.5], [0.5], [0.5]])
    assert have_spread(rewards, 4).tolist() == [True] * 4 + [False] * 4


def test_any_of_several_rewards_may_make_the_spread():
    rewards = torch.tensor([[1.0, 0.0], [1.0, 0.5], [1.0, 0.5], [1.0, 0.5]])
    assert have_spread(rewards, 2).tolist() == [True, True, False, False]


def test_abstained_completions_do_not_count():
    rewards = torch.tensor([[math.nan], [1.0], [1.0], [math.nan], [math.nan], [math.nan], [math.nan], [1.0], [0.0]])
    assert have_spread(rewards, 3).tolist() == [False] * 6 + [True] * 3
    assert not have_spread(torch.full((4, 1), math.nan), 4).any()
