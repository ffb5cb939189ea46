"""The mask as pure functions: numbers made by hand, and a slow float64 reference."""

import math

import numpy as np
import pytest
import torch

from stapo_trl.rules import s2t


def find(probs, entropies, advantages, mask, tau=0.002):
    return s2t.find_candidates(
        torch.tensor(probs).log(), torch.tensor(entropies), torch.tensor(advantages), torch.tensor(mask), tau
    ).tolist()


def test_candidates_are_improbable_tokens_of_correct_responses():
    probs = [[0.001, 0.003], [0.001, 0.001]]
    assert find(probs, [[1.0, 1.0]] * 2, [0.5, -0.5], [[1, 1]] * 2) == [[True, False], [False, False]]


def test_a_token_at_the_probability_threshold_is_no_candidate():
    logps = torch.tensor([[math.log(0.002), math.log(0.00199)]])
    candidates = s2t.find_candidates(logps, torch.ones(1, 2), torch.ones(1), torch.ones(1, 2), 0.002)
    assert candidates.tolist() == [[False, True]]


def test_zero_and_rounding_sized_advantages_are_not_positive():
    probs = [[0.001]] * 4
    assert find(probs, [[1.0]] * 4, [0.0, 1e-7, -1e-7, 1e-3], [[1]] * 4) == [[False], [False], [False], [True]]


def test_padding_is_never_a_candidate_whatever_it_holds():
    assert find([[0.001, 1e-30]], [[1.0, -1e9]], [1.0], [[1, 0]]) == [[True, False]]


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_nonfinite_logps_and_entropies_are_never_candidates(bad):
    logps = torch.tensor([[bad, -9.0, -9.0]])
    entropies = torch.tensor([[1.0, bad, 1.0]])
    candidates = s2t.find_candidates(logps, entropies, torch.ones(1), torch.ones(1, 3), 0.002)
    assert candidates.tolist() == [[False, False, True]]


def test_advantages_may_be_given_for_each_token():
    advantages = torch.tensor([[1.0, -1.0]])
    candidates = s2t.find_candidates(torch.full((1, 2), -9.0), torch.ones(1, 2), advantages, torch.ones(1, 2), 0.002)
    assert candidates.tolist() == [[True, False]]


def test_half_and_single_precision_find_the_same_candidates():
    logps = torch.tensor([[-5.0, -6.0, -7.0, -8.0]])  # the threshold, ln 0.002 = -6.21, lies well between
    args = torch.tensor([[0.5, 0.25, 2.0, 0.125]]), torch.ones(1), torch.ones(1, 4), 0.002
    single = s2t.find_candidates(logps, *args)
    half = s2t.find_candidates(logps.bfloat16(), args[0].bfloat16(), *args[1:])
    assert torch.equal(single, half) and single.tolist() == [[False, False, True, True]]


@pytest.mark.parametrize("q", [0.0, 0.1, 0.5, 0.75, 0.8, 0.999, 1.0])
@pytest.mark.parametrize("count", [1, 2, 3, 10, 1001])
def test_quantile_equals_numpys(q, count):
    values = torch.rand(count, dtype=torch.float64, generator=torch.Generator().manual_seed(count))
    torch.testing.assert_close(s2t.quantile(values, q).item(), float(np.quantile(values.numpy(), q)))


def test_quantile_takes_more_values_than_torchs_limit():
    count = 2**24 + 3
    values = torch.arange(count, dtype=torch.float32) / 2**24
    with pytest.raises(RuntimeError, match="too large"):
        torch.quantile(values, 0.75)
    torch.testing.assert_close(s2t.quantile(values, 0.75).item(), 0.75 * (count - 1) / 2**24)


def test_quantile_of_bfloat16_is_taken_in_float32():
    assert s2t.quantile(torch.tensor([1.0, 2.0], dtype=torch.bfloat16), 0.3).dtype == torch.float32


def test_quantile_of_nothing_is_refused():
    with pytest.raises(ValueError, match="no values"):
        s2t.quantile(torch.tensor([]), 0.5)


def test_quantile_one_silences_every_candidate_and_zero_none():
    entropies = torch.tensor([0.0, 1.0, 1.0, 5.0])
    assert s2t.select_silenced(entropies, s2t.entropy_threshold(entropies, 1.0)).all()
    assert not s2t.select_silenced(entropies, s2t.entropy_threshold(entropies, 0.0)).any()


def test_without_any_token_there_is_nothing_to_silence():
    threshold = s2t.entropy_threshold(torch.tensor([]), 0.75)
    for selection in ("low_entropy", "high_entropy", "random"):
        assert s2t.select_silenced(torch.tensor([]), threshold, selection, torch.tensor([])).tolist() == []


def test_a_candidate_at_the_entropy_threshold_is_kept():
    # The median of 1, 2, 3 is 2 itself
    entropies = torch.tensor([1.0, 2.0, 3.0])
    assert s2t.select_silenced(entropies, s2t.entropy_threshold(entropies, 0.5)).tolist() == [True, False, False]


def test_equal_entropies_silence_nothing():
    entropies = torch.full((5,), 0.3)
    assert not s2t.select_silenced(entropies, s2t.entropy_threshold(entropies, 0.75)).any()


@pytest.mark.parametrize("selection", ["high_entropy", "random"])
def test_ablations_silence_as_many_as_the_method_also_with_ties(selection):
    entropies = torch.tensor([0.1, 0.2, 0.2, 3.0, 3.0, 3.0, 3.0, 0.1])
    threshold = torch.tensor(0.5)
    silenced = s2t.select_silenced(entropies, threshold, selection, torch.tensor([0.5] * 8))
    assert silenced.sum() == s2t.select_silenced(entropies, threshold).sum() == 4
    if selection == "high_entropy":
        assert silenced.tolist() == [False, False, False, True, True, True, True, False]


def test_an_unknown_selection_or_population_is_refused():
    with pytest.raises(ValueError, match="selection"):
        s2t.select_silenced(torch.tensor([1.0]), torch.tensor(2.0), "lowest")
    with pytest.raises(ValueError, match="entropy_population"):
        s2t.compute_keep_mask(*[torch.ones(1, 1)] * 4, entropy_population="everything")


def test_token_keys_are_uniform_and_depend_on_seed_and_prefix_only():
    ids = torch.randint(0, 150_000, (64, 500), generator=torch.Generator().manual_seed(0))
    keys = s2t.token_keys(ids, seed=3)
    assert keys.min() >= 0 and keys.max() < 1
    assert abs(keys.mean() - 0.5) < 0.01 and abs(keys.var() - 1 / 12) < 0.005  # 32,000 draws: 6 standard errors
    torch.testing.assert_close(s2t.token_keys(ids[5:6, :100], seed=3), keys[5:6, :100], rtol=0, atol=0)
    assert (s2t.token_keys(ids, seed=4) != keys).float().mean() > 0.99


def reference_keep_mask(logps, entropies, advantages, mask, tau, q, population):
    """The rule of the paper, one token at a time, in float64."""
    tokens = [(i, t) for i in range(len(mask)) for t in range(len(mask[i])) if mask[i][t] == 1]
    candidates = [(i, t) for i, t in tokens if advantages[i] > 0 and math.exp(logps[i][t]) < tau]
    keep = [[True] * len(row) for row in mask]
    if not candidates:
        return keep
    over = candidates if population == "candidates" else tokens
    threshold = np.quantile([entropies[i][t] for i, t in over], q) if q < 1 else math.inf
    for i, t in candidates:
        if entropies[i][t] < threshold:
            keep[i][t] = False
    return keep


@pytest.mark.parametrize("population", ["candidates", "all"])
@pytest.mark.parametrize("q", [0.0, 0.3, 0.75, 1.0])
@pytest.mark.parametrize("seed", range(5))
def test_keep_mask_equals_a_slow_reference(population, q, seed):
    generator = torch.Generator().manual_seed(seed)
    logps = -8 * torch.rand(7, 11, dtype=torch.float64, generator=generator)
    entropies = 3 * torch.rand(7, 11, dtype=torch.float64, generator=generator)
    advantages = torch.randn(7, dtype=torch.float64, generator=generator)
    mask = (torch.rand(7, 11, generator=generator) < 0.8).long()
    keep = s2t.compute_keep_mask(logps, entropies, advantages, mask, 0.05, q, population)
    expected = reference_keep_mask(
        logps.tolist(), entropies.tolist(), advantages.tolist(), mask.tolist(), 0.05, q, population
    )
    assert keep.tolist() == expected


def test_no_gradient_flows_through_the_mask():
    logps = torch.full((1, 4), -9.0, requires_grad=True)
    entropies = torch.tensor([[0.1, 0.2, 0.3, 0.4]], requires_grad=True)
    keep = s2t.compute_keep_mask(logps, entropies, torch.ones(1), torch.ones(1, 4))
    assert not keep.requires_grad and keep.tolist() == [[False, False, False, True]]
