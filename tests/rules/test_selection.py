import numpy as np
import pytest
import torch

from stapo_trl.rules.selection import quantile, smallest, token_keys


def test_quantile_equals_numpys():
    for q in (0.0, 0.1, 0.5, 0.75, 0.8, 0.999, 1.0):
        for count in (1, 2, 3, 10, 1001):
            values = torch.rand(count, dtype=torch.float64, generator=torch.Generator().manual_seed(count))
            torch.testing.assert_close(quantile(values, q).item(), float(np.quantile(values.numpy(), q)))


def test_quantile_takes_more_values_than_torchs_limit():
    count = 2**24 + 3
    values = torch.arange(count, dtype=torch.float32) / 2**24
    with pytest.raises(RuntimeError, match="too large"):
        torch.quantile(values, 0.75)
    torch.testing.assert_close(quantile(values, 0.75).item(), 0.75 * (count - 1) / 2**24)


def test_quantile_of_bfloat16_is_taken_in_float32():
    assert quantile(torch.tensor([1.0, 2.0], dtype=torch.bfloat16), 0.3).dtype == torch.float32


def test_quantile_of_nothing_is_refused():
    with pytest.raises(ValueError, match="no values"):
        quantile(torch.tensor([]), 0.5)


def test_exactly_as_many_of_the_smallest_are_taken_also_with_ties():
    scores = torch.tensor([0.5, 0.1, 0.5, 0.5, 0.9])
    found = {count: smallest(scores, count).nonzero().flatten().tolist() for count in range(6)}
    assert found == {0: [], 1: [1], 2: [0, 1], 3: [0, 1, 2], 4: [0, 1, 2, 3], 5: [0, 1, 2, 3, 4]}


def test_token_keys_are_uniform_and_depend_on_seed_and_prefix_only():
    ids = torch.randint(0, 150_000, (64, 500), generator=torch.Generator().manual_seed(0))
    keys = token_keys(ids, seed=3)
    assert keys.min() >= 0 and keys.max() < 1
    assert abs(keys.mean() - 0.5) < 0.01 and abs(keys.var() - 1 / 12) < 0.005  # 32,000 draws: 6 standard errors
    torch.testing.assert_close(token_keys(ids[5:6, :100], seed=3), keys[5:6, :100], rtol=0, atol=0)
    assert (token_keys(ids, seed=4) != keys).float().mean() > 0.99
