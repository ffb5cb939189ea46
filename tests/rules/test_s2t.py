"""STAPO's rule: numbers made by hand, and a slow reference."""

import math

import pytest
import torch
from toys import reference_keep_mask

from stapo_trl.rules.s2t import S2T, entropy_threshold
from stapo_trl.rules.tokens import Tokens, gather_one


def apply(probs, entropies, advantages=None, keys=None, **settings):
    """(candidates, silenced) of some tokens."""
    probs, entropies = torch.tensor(probs, dtype=torch.float64), torch.tensor(entropies, dtype=torch.float64)
    advantages = torch.ones_like(probs) if advantages is None else torch.tensor(advantages, dtype=torch.float64)
    keys = torch.zeros_like(probs) if keys is None else torch.tensor(keys)
    edit = S2T(**settings)(Tokens(probs.log(), entropies, advantages, probs.log(), keys, keys), gather_one)
    assert edit.advantages is None
    return edit.candidates.tolist(), (~edit.keep).tolist()


def test_candidates_are_improbable_tokens_of_correct_responses():
    candidates, silenced = apply([0.001, 0.003, 0.001, 0.001], [1.0] * 4, [0.5, 0.5, -0.5, 0.0], entropy_quantile=1.0)
    assert candidates == silenced == [True, False, False, False]


def test_a_token_at_the_probability_threshold_is_no_candidate():
    assert apply([0.002, 0.00199], [1.0, 1.0])[0] == [False, True]


def test_rounding_sized_advantages_are_not_positive():
    assert apply([0.001] * 4, [1.0] * 4, [0.0, 1e-7, -1e-7, 1e-3])[0] == [False, False, False, True]


def test_a_candidate_at_the_entropy_threshold_is_kept():
    # The median of 1, 2, 3 is 2 itself
    assert apply([0.001] * 3, [1.0, 2.0, 3.0], entropy_quantile=0.5)[1] == [True, False, False]


def test_equal_entropies_silence_nothing():
    assert not any(apply([0.001] * 5, [0.3] * 5)[1])


def test_quantile_one_silences_every_candidate_and_zero_none():
    entropies = [0.0, 1.0, 1.0, 5.0]
    for selection in ("low_entropy", "high_entropy", "random"):
        assert all(apply([0.001] * 4, entropies, entropy_quantile=1.0, selection=selection)[1])
        assert not any(apply([0.001] * 4, entropies, entropy_quantile=0.0, selection=selection)[1])
    assert entropy_threshold(torch.tensor(entropies), 1.0) == math.inf


def test_without_any_token_there_is_nothing_to_silence():
    for selection in ("low_entropy", "high_entropy", "random"):
        assert apply([], [], selection=selection) == ([], [])


def test_the_older_population_is_every_token():
    # The quantile of the candidates 0.2, 0.4 alone is 0.35; of all five tokens it is 0.4, at which the second is kept
    probs, entropies = [0.001, 0.001, 0.5, 0.5, 0.5], [0.2, 0.4, 0.1, 0.3, 0.6]
    assert apply(probs, entropies)[1] == [True, False, False, False, False]
    assert apply(probs, entropies, entropy_population="all", entropy_quantile=0.8)[1][:2] == [True, True]  # 0.44
    assert S2T().positive_only and not S2T(entropy_population="all").positive_only


def test_ablations_silence_as_many_as_the_method_also_with_ties():
    # Below 0.2 + 0.75 * (3.0 - 0.2), the median of eight, lie four
    entropies = [0.1, 0.2, 0.2, 3.0, 3.0, 3.0, 3.0, 0.1]
    keys = [0.5] * 8
    silenced = {
        selection: apply([0.001] * 8, entropies, keys=keys, selection=selection, entropy_quantile=0.5)[1]
        for selection in ("low_entropy", "high_entropy", "random")
    }
    assert [sum(mask) for mask in silenced.values()] == [4, 4, 4]
    assert silenced["high_entropy"] == [False, False, False, True, True, True, True, False]
    keys = [0.9, 0.1, 0.8, 0.2, 0.7, 0.3, 0.6, 0.4]
    random = apply([0.001] * 8, entropies, keys=keys, selection="random", entropy_quantile=0.5)[1]
    assert random == [False, True, False, True, False, True, False, True]


def test_it_equals_a_slow_reference():
    count = 0
    for seed in range(5):
        for q in (0.0, 0.3, 0.75, 1.0):
            for population in ("candidates", "all"):
                generator = torch.Generator().manual_seed(seed)
                logps = -8 * torch.rand(1, 77, dtype=torch.float64, generator=generator)
                entropies = 3 * torch.rand(1, 77, dtype=torch.float64, generator=generator)
                advantages = torch.randn(1, 77, dtype=torch.float64, generator=generator)
                mask = torch.ones(1, 77)
                tokens = Tokens(logps[0], entropies[0], advantages[0], logps[0], torch.zeros(77), torch.zeros(77))
                keep = S2T(0.05, q, population)(tokens, gather_one).keep
                expected = reference_keep_mask(logps, entropies, advantages, mask, 0.05, q, population)[0]
                assert torch.equal(keep, expected), (seed, q, population)
                count += int((~keep).sum())
    assert count > 100


def test_it_gathers_candidates_only_and_finds_its_own_among_those_of_all_processes():
    others = torch.tensor([0.05, 0.06, 0.07])
    gathered = []

    def gather(values):
        gathered.append(len(values))
        return torch.cat([others, values]), slice(3, 3 + len(values))

    logps = torch.tensor([0.001, 0.5, 0.001]).log()
    tokens = Tokens(logps, torch.tensor([0.1, 0.1, 0.2]), torch.ones(3), logps, torch.zeros(3), torch.zeros(3))
    # 0.75 of the way through 0.05, 0.06, 0.07, 0.1, 0.2 is 0.1, which is kept; alone, the first would be silenced
    assert S2T()(tokens, gather).keep.tolist() == [True, True, True]
    assert S2T()(tokens, gather_one).keep.tolist() == [False, True, True]
    assert gathered == [2]


def test_the_quadrants_are_parted_by_its_thresholds_or_the_papers():
    probs, entropies = torch.full((5,), 0.001), torch.tensor([0.0, 1.0, 2.0, 3.0, 4.0])
    tokens = Tokens(probs.log(), entropies, torch.ones(5), probs.log(), torch.zeros(5), torch.zeros(5))
    found = {q: S2T(entropy_quantile=q)(tokens, gather_one) for q in (0.0, 0.5, 1.0)}
    assert {q: edit.quadrants for q, edit in found.items()} == {
        0.0: (0.002, 3.0),
        0.5: (0.002, 2.0),
        1.0: (0.002, 3.0),
    }
    assert {q: edit.metrics for q, edit in found.items()} == {0.0: {}, 0.5: {"s2t/entropy_threshold": 2.0}, 1.0: {}}
    nothing = Tokens(*[torch.empty(0)] * 6)
    assert S2T()(nothing, gather_one).quadrants is None


def test_values_out_of_range_are_refused_by_name():
    for name, value in [
        ("prob_threshold", 1.0),
        ("prob_threshold", -0.1),
        ("prob_threshold", "0.002"),
        ("entropy_quantile", 75),
        ("entropy_population", "everything"),
        ("selection", "lowest"),
    ]:
        with pytest.raises(ValueError, match=f"`{name}`.*got {value!r}"):
            S2T(**{name: value})
