"""The theory's identities hold: exact gradients, their bounds, and the entropy change of a small step."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from stapo_trl.observe.dynamics import (
    QUADRANTS,
    describe_quadrants,
    entropy_change,
    find_quadrants,
    gradient_norm_sq,
    gradient_norm_sq_bounds,
    gradient_weights,
    sum_quadrants,
)


def distribution(vocab_size: int, sharpness: float, seed: int) -> torch.Tensor:
    """Log-probabilities (V,) of a random distribution, from uniform to almost certain."""
    generator = torch.Generator().manual_seed(seed)
    logits = sharpness * torch.randn(vocab_size, generator=generator, dtype=torch.float64)
    return logits.log_softmax(-1)


def entropy_of(logps: torch.Tensor) -> torch.Tensor:
    return -(logps.exp() * logps).sum(-1)


@settings(max_examples=200, deadline=None)
@given(
    vocab_size=st.sampled_from([2, 3, 10, 1000, 32_000, 150_000]),
    sharpness=st.floats(0.0, 40.0),
    seed=st.integers(0, 10_000),
    weight=st.floats(-3.0, 3.0),
)
def test_the_exact_norm_lies_between_the_bounds(vocab_size, sharpness, seed, weight):
    logps = distribution(vocab_size, sharpness, seed)
    entropy = entropy_of(logps)
    chosen = logps[[int(logps.argmax()), int(logps.argmin()), seed % vocab_size]]
    exact = gradient_norm_sq(chosen, (2 * logps).logsumexp(-1), weight)
    lower, upper = gradient_norm_sq_bounds(chosen, entropy, vocab_size, weight)
    assert (lower <= exact + 1e-9).all() and (exact <= upper + 1e-9).all()


@pytest.mark.parametrize("vocab_size", [2, 7, 150_000])
def test_both_bounds_are_reached_by_a_uniform_distribution(vocab_size):
    logps = torch.full((vocab_size,), -math.log(vocab_size), dtype=torch.float64)
    exact = gradient_norm_sq(logps[0], (2 * logps).logsumexp(-1))
    lower, upper = gradient_norm_sq_bounds(logps[0], entropy_of(logps), vocab_size)
    torch.testing.assert_close(lower, exact)
    torch.testing.assert_close(upper, exact)
    torch.testing.assert_close(exact, torch.tensor(1 - 1 / vocab_size, dtype=torch.float64))


def test_the_lower_bound_is_reached_where_the_mass_is_uniform_on_some_tokens():
    probs = torch.tensor([0.25, 0.25, 0.25, 0.25, 0.0, 0.0], dtype=torch.float64)
    entropy = torch.tensor(math.log(4), dtype=torch.float64)
    exact = gradient_norm_sq(torch.tensor(-math.inf, dtype=torch.float64), probs.square().sum().log())
    lower, upper = gradient_norm_sq_bounds(torch.tensor(-math.inf, dtype=torch.float64), entropy, 6)
    torch.testing.assert_close(exact, lower)  # 1 + 4/16
    assert exact < upper


def test_both_bounds_are_zero_for_a_certain_token():
    certain = torch.tensor(0.0)
    for value in (gradient_norm_sq(certain, certain), *gradient_norm_sq_bounds(certain, certain, 10)):
        assert value == 0.0


def test_one_token_has_no_bounds():
    with pytest.raises(ValueError, match="at least 2, got 1"):
        gradient_norm_sq_bounds(torch.tensor(0.0), torch.tensor(0.0), 1)


@pytest.mark.parametrize("advantage", [1.5, -0.7])
@pytest.mark.parametrize("shift", [-0.6, -0.1, 0.0, 0.2, 0.5])
def test_the_exact_norm_is_that_of_autograd_also_where_the_clip_is_active(advantage, shift):
    """Gradient of min(ratio A, clip(ratio) A) with respect to the logits."""
    logits = torch.randn(3, 50, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 3
    logits.requires_grad_()
    token = torch.tensor([[4], [7], [49]])
    logps = logits.log_softmax(-1)
    chosen = logps.gather(1, token).squeeze(1)
    ratio = (chosen - chosen.detach() + shift).exp()
    objective = torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.28) * advantage)
    (gradient,) = torch.autograd.grad(objective.sum(), logits)
    weights = gradient_weights(ratio.detach(), torch.full((3,), advantage).double(), 0.2, 0.28)
    with torch.no_grad():
        exact = gradient_norm_sq(chosen, (2 * logps).logsumexp(-1), weights)
    torch.testing.assert_close(exact, gradient.square().sum(-1))


def test_the_norm_of_an_almost_certain_token_does_not_cancel():
    # pi = 1 - 1e-4 in float32, one alternative: the exact value is 2e-8, which 1 - 2 pi + sum pi^2 loses in rounding
    other = torch.tensor(1e-4, dtype=torch.float64)
    logps = torch.stack([torch.log1p(-other), other.log()])
    exact = gradient_norm_sq(logps[0].float(), (2 * logps).logsumexp(-1).float())
    assert 1e-8 <= exact.item() <= 2e-7


@pytest.mark.parametrize("seed", range(5))
def test_the_entropy_changes_sum_to_that_of_a_small_natural_gradient_step(seed):
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(40, generator=generator, dtype=torch.float64)
    advantages = torch.randn(40, generator=generator, dtype=torch.float64)
    logps = logits.log_softmax(-1)
    expected = (logps.exp() * advantages).sum()
    predicted = entropy_change(logps, entropy_of(logps), advantages, 1e-4, expected)
    after, before = ((logits + step * (advantages - expected)).log_softmax(-1) for step in (1e-4, -1e-4))
    # The central difference has no second-order term
    torch.testing.assert_close(predicted.sum(), (entropy_of(after) - entropy_of(before)) / 2, rtol=1e-6, atol=1e-12)


def test_an_improbable_rewarded_token_raises_entropy_and_a_probable_one_lowers_it():
    logps, entropy = torch.tensor([0.9, 0.001]).log(), torch.tensor(0.4)
    rewarded = entropy_change(logps, entropy, torch.tensor(1.0))
    assert rewarded[0] < 0 < rewarded[1]
    torch.testing.assert_close(entropy_change(logps, entropy, torch.tensor(-1.0)), -rewarded)


def test_a_token_at_a_threshold_is_probable_and_uncertain():
    prob, entropy = 0.002, 0.5
    assert find_quadrants(torch.tensor(prob, dtype=torch.float64).log(), torch.tensor(entropy), prob, entropy) == 0


def test_quadrants_hold_the_counts_shares_and_means_of_their_tokens():
    logps = torch.tensor([[0.5, 0.5, 0.001, 0.001], [0.5, 0.001, 0.001, 0.5]]).log()
    entropies = torch.tensor([[2.0, 0.1, 2.0, 0.1], [2.0, 0.2, 0.4, 9.0]])
    norms = torch.tensor([[1.0, 2.0, 3.0, 4.0], [10.0, 5.0, 6.0, 99.0]])
    mask = torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0]])
    described = describe_quadrants(
        sum_quadrants(logps, entropies, norms, torch.tensor([1.0, -1.0]), mask, 0.002, entropy_threshold=1.0)
    )
    for quadrant, norm in zip(QUADRANTS, [1.0, 2.0, 3.0, 4.0], strict=True):
        assert described[f"positive/{quadrant}/count"] == 1
        assert described[f"positive/{quadrant}/gradient_norm"] == norm
        assert described[f"positive/{quadrant}/gradient_share"] == pytest.approx(norm / 31)
    assert described["negative/low_prob_low_entropy/share"] == pytest.approx(2 / 7)
    assert described["negative/low_prob_low_entropy/entropy"] == pytest.approx(0.3)
    assert described["negative/low_prob_low_entropy/gradient_norm"] == pytest.approx(5.5)
    assert described["negative/low_prob_high_entropy/count"] == 0
    assert "negative/low_prob_high_entropy/prob" not in described
    # -0.001 * (ln 0.001 + 0.1) / 7 tokens
    assert described["positive/low_prob_low_entropy/entropy_change"] == pytest.approx(0.001 * 6.80776 / 7, rel=1e-4)


def test_sums_of_two_batches_are_the_sums_of_their_union():
    generator = torch.Generator().manual_seed(1)
    values = [torch.randn(6, 9, generator=generator) for _ in range(3)]
    logps, entropies, norms = -values[0].abs(), values[1].abs(), values[2].abs()
    advantages, mask = torch.randn(6, generator=generator), torch.rand(6, 9, generator=generator) > 0.2
    arguments = (logps, entropies, norms, advantages, mask)
    whole = sum_quadrants(*arguments, 0.4, 0.6)
    parts = sum(sum_quadrants(*(x[rows] for x in arguments), 0.4, 0.6) for rows in (slice(0, 2), slice(2, 6)))
    torch.testing.assert_close(parts, whole)


def test_tokens_with_non_finite_scores_and_padding_are_left_out():
    logps = torch.tensor([[math.nan, -1.0, -1.0]])
    entropies = torch.tensor([[1.0, math.inf, 1.0]])
    sums = sum_quadrants(logps, entropies, torch.ones(1, 3), torch.ones(1), torch.tensor([[1, 1, 0]]), 0.002, 1.0)
    assert not sums.any()
    assert set(describe_quadrants(sums).values()) == {0.0}
