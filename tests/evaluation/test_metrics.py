import itertools

import numpy as np
import pytest

from stapo_trl.evaluation.metrics import avg_at_n, interval, maj_at_k, pass_at_k


def test_pass_at_k_equals_the_share_of_subsets_with_a_right_one():
    for n in (1, 2, 5, 7):
        for c, k in itertools.product(range(n + 1), range(1, n + 1)):
            subsets = list(itertools.combinations([True] * c + [False] * (n - c), k))
            expected = sum(any(subset) for subset in subsets) / len(subsets)
            assert pass_at_k([n], [c], k)[0] == pytest.approx(expected, abs=1e-12), (n, c, k)


def test_pass_at_k_never_asks_for_more_samples_than_a_problem_has():
    for k in (0, 3, 10):
        with pytest.raises(ValueError, match="from 1 to 2"):
            pass_at_k([4, 2], [1, 1], k)
    # 50 of 164 problems solved by their one sample: the counts are per problem, not the problems themselves
    n, c = [1] * 164, [1] * 50 + [0] * 114
    assert pass_at_k(n, c, 1).mean() == pytest.approx(50 / 164)
    with pytest.raises(ValueError, match="k must be from 1 to 1"):
        pass_at_k(n, c, 10)


def test_pass_at_k_is_exact_for_large_counts():
    assert pass_at_k([1000], [1], 500)[0] == pytest.approx(0.5)


def test_avg_at_n_means_over_samples_then_problems():
    # 1/1 and 0/9: mean of the problems' means is 1/2, while one in ten samples is right
    assert avg_at_n([1, 9], [1, 0]).mean() == 0.5
    assert avg_at_n([10], [1])[0] == 0.1 and pass_at_k([10], [1], 10)[0] == 1


def test_impossible_counts_are_refused():
    for n, c in ((0, 0), (2, 3), (2, -1)):
        with pytest.raises(ValueError, match="right ones"):
            avg_at_n([n], [c])


def test_a_tie_goes_to_the_earliest_answer_whatever_is_right():
    assert maj_at_k([["a", "b", "b", "a"]], [[True, False, False, True]], 4).tolist() == [1.0]
    assert maj_at_k([["b", "a", "a", "b"]], [[False, True, True, False]], 4).tolist() == [0.0]


def test_samples_without_an_answer_abstain():
    assert maj_at_k([[None, None, "a"]], [[False, False, True]], 3).tolist() == [1.0]
    assert maj_at_k([[None, None]], [[False, False]], 2).tolist() == [0.0]


def test_majority_of_fewer_samples_is_the_mean_over_blocks():
    votes, right = [["a", "b", "b", "a", "a"]], [[True, False, False, True, True]]
    assert maj_at_k(votes, right, 2).tolist() == [0.5]  # (a, b) elects a, (b, a) elects b, the fifth is left over
    assert maj_at_k(votes, right, 1)[0] == pytest.approx(3 / 5)
    with pytest.raises(ValueError, match="from 1 to 5"):
        maj_at_k(votes, right, 6)


def test_interval_agrees_with_the_binomial():
    # 400 problems, 30 % right: the standard error is sqrt(0.3 * 0.7 / 400) = 0.0229
    low, high = interval([[1.0] * 120 + [0.0] * 280])
    assert (low, high) == (
        pytest.approx(0.3 - 1.96 * 0.0229, abs=0.004),
        pytest.approx(0.3 + 1.96 * 0.0229, abs=0.004),
    )


@pytest.mark.slow
def test_interval_covers_a_known_rate_95_percent_of_the_time():
    rng = np.random.default_rng(1)
    ends = [interval([(rng.random(60) < 0.4).astype(float)]) for _ in range(200)]
    covered = np.mean([low <= 0.4 <= high for low, high in ends])
    assert 0.9 <= covered <= 0.99


def test_equal_values_claim_no_certainty():
    # The exact (Clopper-Pearson) bounds of 0 and 30 of 30: 1 - 0.025^(1/30) = 0.1157
    assert interval([[0.0] * 30]) == (0.0, pytest.approx(0.1157, abs=1e-4))
    assert interval([[1.0] * 30]) == (pytest.approx(1 - 0.1157, abs=1e-4), 1.0)
    low, high = interval([[0.5]])
    assert low < 0.05 and high > 0.95


def test_the_mean_over_benchmarks_weighs_them_equally():
    # Standard errors 0.5/sqrt(25) = 0.1 and 0.5/sqrt(2500) = 0.01: of the mean sqrt(0.1^2 + 0.01^2) / 2 = 0.0502
    low, high = interval([[1.0, 0.0] * 12 + [1.0], [1.0, 0.0] * 1250])
    assert (high - low) / 2 == pytest.approx(1.96 * 0.0502, abs=0.008)


def test_the_same_values_have_the_same_interval():
    values = [[0.25, 0.5, 1.0, 0.0]]
    assert interval(values) == interval(values)
