"""A fixed window: 6 responses of 2 prompts, 23 tokens in one optimizer step."""

import torch

from stapo_trl.rules.tokens import Edit, Gather, Rule, Tokens, gather_one


PROBS = [
    [0.90, 0.0010, 0.60, 0.0015, 0.97],
    [0.80, 0.0040, 0.35, 0.99],
    [0.0005, 0.75, 0.45],
    [0.95, 0.20, 0.0012, 0.88, 0.05],
    [0.55, 0.0019],
    [0.70, 0.30, 0.92, 0.010],
]
ENTROPIES = [
    [0.35, 0.20, 0.90, 1.10, 0.12],
    [0.50, 0.30, 1.40, 0.05],
    [0.60, 0.70, 1.30],
    [0.22, 1.60, 0.40, 0.45, 1.80],
    [1.05, 2.00],
    [0.80, 1.50, 0.28, 0.65],
]
RATIOS = [
    [1, 1.35, 1.1, 0.7, 1.19],
    [0.83, 0.6, 1.25, 1],
    [1.15, 1, 0.9],
    [0.97, 1.3, 1, 1.05, 0.85],
    [1.45, 0.25],
    [1, 3.5, 0.98, 0.78],
]
ADVANTAGES = [0.7, -1.4, 0.7, -0.5, 1.0, -0.5]
# fmt: off
KEYS = [0.62, 0.11, 0.87, 0.34, 0.05, 0.71, 0.01, 0.93, 0.26, 0.58, 0.02, 0.79, 0.41, 0.66, 0.17, 0.90, 0.31, 0.54, 0.09,
        0.83, 0.22, 0.75, 0.45]
# fmt: on


def make_window(dtype=torch.float64) -> Tokens:
    def flat(rows):
        return torch.tensor([value for row in rows for value in row], dtype=dtype)

    lengths = torch.tensor([len(row) for row in PROBS])
    logps = flat(PROBS).log()
    return Tokens(
        logps,
        flat(ENTROPIES),
        torch.tensor(ADVANTAGES, dtype=dtype).repeat_interleave(lengths),
        logps - flat(RATIOS).log(),
        torch.tensor(KEYS, dtype=dtype),
        torch.arange(6).repeat_interleave(lengths),
    )


def select(tokens: Tokens, chosen: torch.Tensor) -> Tokens:
    return Tokens(*[column[chosen] for column in tokens])


def apply(rule: Rule, tokens: Tokens, gather: Gather = gather_one) -> tuple[torch.Tensor, torch.Tensor]:
    """(kept, advantages) of all tokens."""
    edit: Edit = rule(tokens, gather)
    keep = torch.ones_like(tokens.logps, dtype=torch.bool) if edit.keep is None else edit.keep
    return keep, tokens.advantages if edit.advantages is None else edit.advantages


def apply_apart(rule: Rule, parts: list[Tokens]) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """[`apply`] on several processes, one part each; they must gather equally often, as collectives would hang otherwise."""
    asked = [[] for _ in parts]  # what each process has gathered so far

    def run(rank):
        answered = 0

        def gather(values):
            nonlocal answered
            if answered == len(asked[rank]):
                asked[rank].append(values)
            own, answered = answered, answered + 1
            if any(len(other) <= own for other in asked):
                raise LookupError  # another process has not come so far
            joined = [other[own] for other in asked]
            start = sum(len(values) for values in joined[:rank])
            return torch.cat(joined), slice(start, start + len(values))

        return apply(rule, parts[rank], gather)

    results = [None] * len(parts)
    for _ in range(10):
        for rank in range(len(parts)):
            try:
                results[rank] = run(rank)
            except LookupError:
                results[rank] = None
    assert len({len(other) for other in asked}) == 1 and None not in results, "processes gathered differently often"
    return results
