"""The model's own numbers for each saved token, and the trainer's rule on them."""

import pytest
import torch
from toys import reference_keep_mask

from stapo_trl.arithmetic.warm_start import build_model
from stapo_trl.cli.score.completions import Completion
from stapo_trl.cli.score.scores import apply_rule, score_completions
from stapo_trl.observe.dynamics import QUADRANTS
from stapo_trl.rules.s2t import S2T


COMPLETIONS = [
    Completion("a", [3, 4], [5, 6, 7, 8], 1.0, 0.7),
    Completion("a", [3, 4], [9], 0.0, -0.7),
    Completion("b", [2, 3, 4, 5, 6, 7], [5, 1], 1.0, 1.5),
]


@pytest.mark.parametrize("batch_size", [1, 2, 8])
def test_scores_are_those_of_a_plain_forward(batch_size):
    model = build_model()
    scores = score_completions(model, COMPLETIONS, temperature=0.7, batch_size=batch_size)
    for completion, score in zip(COMPLETIONS, scores, strict=True):
        ids = torch.tensor([completion.prompt_ids + completion.completion_ids])
        logits = model(ids).logits[0, len(completion.prompt_ids) - 1 : -1] / 0.7
        logps = logits.log_softmax(-1)
        chosen = logps.gather(1, torch.tensor(completion.completion_ids).unsqueeze(1)).squeeze(1)
        expected = torch.stack([chosen, -(logps.exp() * logps).sum(-1), logps.exp().square().sum(-1).log()])
        torch.testing.assert_close(score, expected, rtol=1e-4, atol=1e-5)


def test_the_rule_is_the_trainers():
    scores = score_completions(build_model(), COMPLETIONS)
    metrics, tokens = apply_rule(COMPLETIONS, scores, S2T(0.05, 0.6))
    logps, entropies, _ = torch.cat(scores, dim=1).unsqueeze(1)
    advantages = torch.tensor([[0.7] * 4 + [-0.7] + [1.5] * 2])
    keep = reference_keep_mask(logps, entropies, advantages, torch.ones(1, 7), 0.05, 0.6)
    silenced = torch.cat(tokens["silenced"])
    assert torch.equal(silenced, ~keep[0]) and 0 < silenced.sum() < 6
    assert metrics["s2t/silenced_share"] == pytest.approx(silenced.sum().item() / 7)
    assert [len(values) for values in tokens["candidate"]] == [4, 1, 2]
    shares = [metrics[f"s2t/{sign}/{quadrant}/share"] for sign in ("positive", "negative") for quadrant in QUADRANTS]
    assert sum(shares) == pytest.approx(1.0)
    assert metrics["reward"] == pytest.approx(2 / 3) and metrics["completions/mean_length"] == pytest.approx(7 / 3)
