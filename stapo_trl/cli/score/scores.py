"""The tokens of saved completions: their scores under a model, the token rule on them, and rows for the token log."""

import warnings

import torch
from tqdm.auto import tqdm
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from trl.trainer.utils import add_fused_lm_head

from ...observe.dynamics import describe_quadrants, gradient_norm_sq, sum_quadrants
from ...observe.fused_head import find_alternatives
from ...observe.recorder import decode, describe_token
from ...rules.tokens import Rule, gather_one
from ...trainer.optimizer_step import describe_edit, flatten, lay_out, sum_edit, watch
from .completions import Completion


SAMPLED_OTHERS = 20_000  # tokens that are no candidates
SHOWN_COMPLETIONS = 40
SHOWN_POSITIONS = 64  # of a completion whose alternatives are looked up


@torch.no_grad()
def score_completions(
    model: PreTrainedModel, completions: list[Completion], temperature: float = 1.0, batch_size: int = 8
) -> list[torch.Tensor]:
    """
    Log-probabilities and entropies, in nats, and log-sums of squared probabilities of the tokens of each completion: (3, T)
    in float32.

    Raises:
        `ValueError`: for a token or a position that the model does not have.
    """
    lengths = [len(completion.prompt_ids) + len(completion.completion_ids) for completion in completions]
    config = model.config.get_text_config()
    context = getattr(config, "max_position_embeddings", None)
    if context and max(lengths, default=0) > context:
        text = f"A prompt with its completion has {max(lengths)} tokens, but the model was made for {context} at most"
        if not hasattr(config, "rope_parameters"):  # its positions are learned, and there are no more
            raise ValueError(f"{text}: leave longer ones out.")
        warnings.warn(f"{text}, so the scores of the tokens beyond mean little.")
    num_embeddings = model.get_input_embeddings().num_embeddings
    for number, completion in enumerate(completions):
        if (highest := max(completion.prompt_ids + completion.completion_ids)) >= num_embeddings:
            raise ValueError(
                f"Completion {number} has the token id {highest}, but the model has {num_embeddings} embeddings: it was "
                "sampled from another model, or the tokenizer is another model's."
            )
    add_fused_lm_head(model, temperature, outputs=("log_probs", "entropy", "log_sum_sq_probs"))
    model.eval()
    order = sorted(range(len(completions)), key=lengths.__getitem__, reverse=True)  # too little memory shows at once
    scores = [None] * len(completions)
    with tqdm(total=len(completions), desc="Score", disable=None) as bar:
        for start in range(0, len(order), batch_size):
            batch = order[start : start + batch_size]
            input_ids = torch.zeros(len(batch), lengths[batch[0]], dtype=torch.long)
            attention_mask, labels = torch.zeros_like(input_ids), torch.full_like(input_ids, -100)
            for row, index in enumerate(batch):
                prompt, completion = completions[index].prompt_ids, completions[index].completion_ids
                input_ids[row, : lengths[index]] = torch.tensor(prompt + completion)
                attention_mask[row, : lengths[index]] = 1
                labels[row, len(prompt) : lengths[index]] = torch.tensor(completion)
            outputs = model(
                input_ids=input_ids.to(model.device),
                attention_mask=attention_mask.to(model.device),
                labels=labels.to(model.device),
                fused_lm_head=True,
            )
            values = torch.stack([outputs.log_probs, outputs.entropy, outputs.log_sum_sq_probs]).float().cpu()
            for row, index in enumerate(batch):
                # The score of a token stands at the position before it
                scores[index] = values[:, row, len(completions[index].prompt_ids) - 1 : lengths[index] - 1].clone()
            bar.update(len(batch))
    return scores


def apply_rule(
    completions: list[Completion],
    scores: list[torch.Tensor],
    rule: Rule,
    step: int = 1,
) -> tuple[dict[str, float], dict[str, list]]:
    """
    Apply a token rule to completions that make one optimizer step, as the trainer does.

    Returns:
        `tuple[dict, dict]`: the metrics, as STAPOTrainer names them, and for each completion tensors (T,) of its tokens:
        `candidate`, `silenced`, `gradient_norm`, and `edited_advantage` if the rule changes any; and `entropy_threshold`, a
        number or `None`, the same for all.
    """
    lengths = [score.size(1) for score in scores]
    logps, entropies, sums_sq = torch.cat(scores, dim=1).unsqueeze(1)  # (1, N) each: one response of all tokens
    advantages = torch.cat([torch.full((1, n), c.advantage) for c, n in zip(completions, lengths, strict=True)], dim=1)
    ids = torch.tensor([[token for completion in completions for token in completion.completion_ids]])
    mask = torch.ones_like(logps)
    inputs = [{"completion_mask": mask, "completion_ids": ids, "advantages": advantages}]
    tokens, places = flatten(inputs, [(logps, entropies)], seed=0, positive_only=rule.positive_only)
    responses = torch.arange(len(lengths)).repeat_interleave(torch.tensor(lengths))
    tokens = tokens._replace(responses=responses[places[0][0]])
    edit = watch(rule, tokens, rule(tokens, gather_one), gather_one)
    laid_out = lay_out(tokens, edit, inputs, places)
    edited = laid_out.advantages[0]
    norms = gradient_norm_sq(logps, sums_sq, advantages if edited is None else edited).sqrt()
    rewards = [completion.reward for completion in completions if completion.reward is not None]
    metrics = {"step": step} | describe_edit(edit, sum(lengths), *map(float, sum_edit(tokens, edit))) | edit.metrics
    metrics |= {"completions/mean_length": sum(lengths) / len(lengths), "s2t/entropy": entropies.nanmean().item()}
    if rewards:
        metrics["reward"] = sum(rewards) / len(rewards)
    if edit.quadrants is not None:
        sums = sum_quadrants(logps, entropies, norms, advantages, mask, *edit.quadrants)
        metrics |= {f"s2t/{name}": value for name, value in describe_quadrants(sums).items()}
    columns = {"candidate": laid_out.candidates[0], "silenced": ~laid_out.keep_masks[0], "gradient_norm": norms}
    if edited is not None:
        columns["edited_advantage"] = edited
    columns = {name: values[0].split(lengths) for name, values in columns.items()}
    columns["entropy_threshold"] = [edit.quadrants[1] if edit.quadrants else None] * len(lengths)
    return metrics, columns


def list_tokens(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    completions: list[Completion],
    scores: list[torch.Tensor],
    tokens: dict[str, list[torch.Tensor]],
    steps: list[int],
    temperature: float,
) -> tuple[list[dict], list[dict]]:
    """Rows of the token log: every candidate with its alternatives, a sample of the others, and some completions."""
    others = torch.cat([~candidate for candidate in tokens["candidate"]])
    share = SAMPLED_OTHERS / max(int(others.sum()), 1)
    generator = torch.Generator().manual_seed(0)
    rows, shown = [], []
    for index, completion in enumerate(tqdm(completions, desc="Tokens", disable=None)):
        candidate, silenced = tokens["candidate"][index], tokens["silenced"][index]
        chosen = candidate | (torch.rand(len(candidate), generator=generator) < share)
        ids = completion.prompt_ids + completion.completion_ids
        positions = silenced.nonzero().flatten().tolist() + (candidate & ~silenced).nonzero().flatten().tolist()
        positions = positions[:SHOWN_POSITIONS]
        alternatives = {}
        if positions:
            places = [len(completion.prompt_ids) + position for position in positions]
            found = find_alternatives(model, torch.tensor(ids, device=model.device), places, temperature)
            alternatives = dict(zip(positions, found, strict=True))
        common = {"step": steps[index], "completion_id": str(index), "problem_id": completion.problem_id}
        common |= {"advantage": completion.advantage, "reward": completion.reward}
        threshold = tokens["entropy_threshold"][index]
        for position in chosen.nonzero().flatten().tolist():
            at = len(completion.prompt_ids) + position
            rows.append(
                common
                | {
                    "position": position,
                    "token_id": ids[at],
                    **describe_token(tokenizer, ids, at, alternatives.get(position)),
                    "prob": scores[index][0, position].exp().item(),
                    "entropy": scores[index][1, position].item(),
                    "entropy_threshold": threshold,
                    "ratio": 1.0,
                    "gradient_norm": tokens["gradient_norm"][index][position].item(),
                    "candidate": bool(candidate[position]),
                    "silenced": bool(silenced[position]),
                }
            )
            if "edited_advantage" in tokens:
                rows[-1]["edited_advantage"] = tokens["edited_advantage"][index][position].item()
        shown.append((int(silenced.sum()), completion.advantage, -index))
    completion_rows = [
        {
            "step": steps[index],
            "completion_id": str(index),
            "problem_id": completions[index].problem_id,
            "prompt": tokenizer.decode(completions[index].prompt_ids),
            "tokens": [decode(tokenizer, token) for token in completions[index].completion_ids],
            "probs": scores[index][0].exp().tolist(),
            "entropies": scores[index][1].tolist(),
            "silenced": tokens["silenced"][index].tolist(),
            "advantage": completions[index].advantage,
            "reward": completions[index].reward,
        }
        for index in sorted(-place for _, _, place in sorted(shown)[-SHOWN_COMPLETIONS:])
    ]
    return rows, completion_rows
