"""
Decoding with transformers in a batch that stays full: a row that ends leaves it with its part of the cache, and the
next prompt takes its place. Each row has its own random numbers, so that a sample does not depend on the other rows
(except for rounding: padding and batch size change the last bits of the logits).
"""

# Not transformers 5.24's `generate_batch`: it seeds the process's generator once per batch, so that a sample depends
# on its neighbours; it has no entropies, and prints errors.

import inspect
import random
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch
from transformers import DynamicCache, PreTrainedModel
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer

from .settings import SamplingSettings


@dataclass
class Row:
    """A completion in the making."""

    index: int  # of its prompt
    prompt: list[int]
    room: int  # most tokens of the completion
    rng: random.Random  # gives one number for each token
    tokens: list[int] = field(default_factory=list)
    entropy: float = 0.0  # sum over the tokens, nats
    ended: bool = False  # by an end token

    @property
    def finished(self) -> bool:
        return self.ended or len(self.tokens) == self.room


class Batch:
    """Rows that are decoded together: their cache, aligned at its right end, and the logits of their next token."""

    def __init__(self, model: PreTrainedModel):
        self.model, self.rows = model, []
        self.accepted = inspect.signature(model.forward).parameters
        layers = DynamicCache(config=model.config).layers
        # Rows can join only where a layer's cache is keys and values by position; a recurrent state has no padding
        self.takes_rows = all(type(layer) in (DynamicLayer, DynamicSlidingWindowLayer) for layer in layers)

    def _forward(self, ids: torch.Tensor, mask: torch.Tensor, cache: DynamicCache, positions: torch.Tensor):
        options = {"position_ids": positions, "logits_to_keep": 1}
        options = {name: value for name, value in options.items() if name in self.accepted}
        options["cache" if "cache" in self.accepted else "past_key_values"] = cache  # renamed in transformers 5.24
        output = self.model(input_ids=ids, attention_mask=mask, use_cache=True, return_dict=True, **options)
        return output.logits[:, -1].float()

    def add(self, rows: list[Row]) -> None:
        """Append rows, and read their prompts."""
        device, width = self.model.device, max(len(row.prompt) for row in rows)
        ids = torch.tensor([[0] * (width - len(row.prompt)) + row.prompt for row in rows], device=device)
        lengths = torch.tensor([[len(row.prompt)] for row in rows], device=device)
        mask = (torch.arange(width, device=device) >= width - lengths).long()
        positions = (mask.cumsum(1) - 1).clamp(min=0)
        # Without the configuration every layer keeps all positions, also one with a window, which its mask cuts out
        cache = DynamicCache() if self.takes_rows else DynamicCache(config=self.model.config)
        logits = self._forward(ids, mask, cache, positions)
        if not self.rows:
            self.cache, self.mask, self.logits, self.lengths = cache, mask, logits, lengths
        else:
            missing = mask.size(1) - self.mask.size(1)
            for layer, new in zip(self.cache.layers, cache.layers, strict=True):
                layer.keys = torch.cat([_pad(layer.keys, missing, -2), _pad(new.keys, -missing, -2)])
                layer.values = torch.cat([_pad(layer.values, missing, -2), _pad(new.values, -missing, -2)])
            self.mask = torch.cat([_pad(self.mask, missing, -1), _pad(mask, -missing, -1)])
            self.logits = torch.cat([self.logits, logits])
            self.lengths = torch.cat([self.lengths, lengths])
        self.rows += rows

    def step(self, tokens: torch.Tensor) -> None:
        """Append one token to every row."""
        self.mask = torch.cat([self.mask, self.mask.new_ones(len(self.rows), 1)], 1)
        self.logits = self._forward(tokens[:, None], self.mask, self.cache, self.lengths)
        self.lengths = self.lengths + 1

    def keep(self, places: list[int]) -> None:
        """Drop all other rows, and the columns that are padding in all that stay."""
        self.rows = [self.rows[place] for place in places]
        if not places:
            self.cache = self.mask = self.logits = self.lengths = None
            return
        index = torch.tensor(places, device=self.mask.device)
        self.mask, self.logits, self.lengths = self.mask[index], self.logits[index], self.lengths[index]
        self.cache.reorder_cache(index)
        if self.takes_rows:
            start = int(self.mask.argmax(1).min())
            self.mask = self.mask[:, start:]
            for layer in self.cache.layers:
                layer.keys, layer.values = layer.keys[..., start:, :], layer.values[..., start:, :]


def _pad(tensor: torch.Tensor, count: int, dim: int) -> torch.Tensor:
    """Zeros in front of a dimension; unchanged for a count below 1."""
    if count <= 0:
        return tensor
    shape = list(tensor.shape)
    shape[dim] = count
    return torch.cat([tensor.new_zeros(shape), tensor], dim)


def choose(logits: torch.Tensor, settings: SamplingSettings, uniform: Sequence[float]) -> torch.Tensor:
    """
    The next token of each row of (B, V) logits: where the cumulative distribution passes the row's uniform number.

    Three quarters of the mass are on token 0:

    ```python
    >>> logits = torch.tensor([[3.0, 1.0], [3.0, 1.0]]).log()
    >>> choose(logits, SamplingSettings(temperature=1.0, top_p=1.0), [0.74, 0.76]).tolist()
    [0, 1]
    >>> choose(logits, SamplingSettings(temperature=1.0, top_p=0.7), [0.74, 0.76]).tolist()
    [0, 0]
    ```
    """
    if settings.temperature == 0:
        return logits.argmax(-1)
    probs = (logits.double() / settings.temperature).softmax(-1)
    order = None
    if settings.top_p < 1:
        probs, order = probs.sort(dim=-1, descending=True, stable=True)
        probs = probs.where(probs.cumsum(-1) - probs < settings.top_p, 0.0)  # mass of the more probable ones
    cumulative = probs.cumsum(-1)
    points = torch.tensor(uniform, dtype=torch.float64, device=logits.device)[:, None] * cumulative[:, -1:]
    place = torch.searchsorted(cumulative, points, right=True).clamp(max=probs.size(-1) - 1)
    return (place if order is None else order.gather(-1, place)).squeeze(-1)


@torch.no_grad()
def decode(
    model: PreTrainedModel,
    prompts: Sequence[list[int]],
    seeds: Sequence[str],
    settings: SamplingSettings,
    end_tokens: set[int],
    batch_size: int,
) -> Iterator[list[Row]]:
    """
    Complete unpadded prompts, each with its own seed, and yield the rows that end in a step.

    Nothing of the model is changed but its mode, while a batch is decoded. `ValueError` for a prompt that fills the
    model's window, `RuntimeError` for scores that are not finite.
    """
    window = getattr(model.config.get_text_config(), "max_position_embeddings", None) or float("inf")
    for prompt in prompts:
        if not 0 < len(prompt) < window:
            raise ValueError(f"A prompt has {len(prompt)} tokens, but the model's window is {window}.")
    waiting = deque(
        Row(index, prompt, int(min(settings.max_new_tokens, window - len(prompt))), random.Random(seed))
        for index, (prompt, seed) in enumerate(zip(prompts, seeds, strict=True))
    )
    batch = Batch(model)
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        while waiting or batch.rows:
            free = batch_size - len(batch.rows)
            # Reading a few prompts costs as much as a step: wait until an eighth of the batch is free
            if waiting and (not batch.rows or (batch.takes_rows and free >= max(1, batch_size // 8))):
                batch.add([waiting.popleft() for _ in range(min(free, len(waiting)))])
            tokens = choose(batch.logits, settings, [row.rng.random() for row in batch.rows])
            # Of the model's own distribution, before temperature and top-p
            entropies = torch.special.entr(batch.logits.softmax(-1)).sum(-1).tolist()
            for row, token, entropy in zip(batch.rows, tokens.tolist(), entropies, strict=True):
                row.tokens.append(token)
                row.entropy += entropy
                row.ended = token in end_tokens
            finished = [row for row in batch.rows if row.finished]
            if finished:
                places = [place for place, row in enumerate(batch.rows) if not row.finished]
                batch.keep(places)
                tokens = tokens[places]
                for row in finished:
                    if row.entropy != row.entropy:
                        raise RuntimeError(
                            "The model gives scores that are not finite: load it in bfloat16 or float32."
                        )
                yield finished
            if batch.rows:
                batch.step(tokens)
    finally:
        for module, training in modes.items():
            module.training = training
