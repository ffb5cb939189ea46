"""Sampling with transformers."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ..samples import Request, Sample
from .decoding import decode
from .policy import check_chat_template, end_tokens, fingerprint, load_policy, read_prompt, read_response
from .settings import SamplingSettings


class TransformersSampler:
    """
    Samples with transformers, in a batch that is refilled as completions end.

    Args:
        model (`str` or `PreTrainedModel`):
            Folder or hub name of a model or an adapter, loaded at the first sample; or a loaded model.
        tokenizer (`PreTrainedTokenizerBase`, *optional*):
            Tokenizer of a loaded model.
        revision (`str`, *optional*):
            Branch, tag or commit on the hub.
        batch_size (`int`, defaults to `64`):
            Completions at a time. It does not change a sample, except for rounding.
        chat_template_kwargs (`Mapping`, *optional*):
            Variables of the chat template, as in training, such as `{"enable_thinking": False}`.
    """

    backend = "transformers"

    def __init__(
        self,
        model: str | PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase | None = None,
        revision: str | None = None,
        batch_size: int = 64,
        chat_template_kwargs: Mapping | None = None,
    ):
        if not isinstance(model, str) and tokenizer is None:
            raise ValueError("A loaded model needs its `tokenizer`; or pass the model's name.")
        if batch_size < 1:
            raise ValueError(f"`batch_size` must be at least 1, got {batch_size}.")
        self.model, self.tokenizer, self.revision, self.batch_size = model, tokenizer, revision, batch_size
        self.chat_template_kwargs = dict(chat_template_kwargs or {})

    @cached_property
    def fingerprint(self) -> str | None:
        """Identifies the weights; `None` for a loaded model, whose weights may change."""
        return fingerprint(self.model, self.revision) if isinstance(self.model, str) else None

    @cached_property
    def _loaded(self) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
        if isinstance(self.model, str):
            model, tokenizer = load_policy(self.model, self.revision)
            check_chat_template(tokenizer, self.chat_template_kwargs)
            return model, tokenizer
        return self.model, self.tokenizer

    def sample(self, requests: Sequence[Request], settings: SamplingSettings) -> Iterator[list[Sample]]:
        """Yields samples without verdicts, as they end."""
        model, tokenizer = self._loaded
        if hasattr(model, "get_base_model"):  # peft's wrapper; its layers stay in the model inside
            model = model.get_base_model()
        prompts = {}
        for request in requests:
            if request.problem.checksum not in prompts:
                prompts[request.problem.checksum] = read_prompt(
                    tokenizer, request.problem.prompt, self.chat_template_kwargs
                )
        rows = decode(
            model,
            [prompts[request.problem.checksum] for request in requests],
            [request.seed(settings.seed) for request in requests],
            settings,
            end_tokens(tokenizer, model.config.get_text_config(), model.config, model.generation_config),
            self.batch_size,
        )
        for finished in rows:
            texts = [read_response(tokenizer, row.prompt, row.tokens) for row in finished]
            yield [
                Sample(
                    *requests[row.index].key,
                    checksum=requests[row.index].problem.checksum,
                    text=text,
                    num_tokens=len(row.tokens),
                    truncated=not row.ended,
                    entropy=round(row.entropy / len(row.tokens), 6),
                )
                for row, text in zip(finished, texts, strict=True)
            ]

    def close(self) -> None:
        """Free the memory of a model that was loaded here."""
        if isinstance(self.model, str):
            self.__dict__.pop("_loaded", None)
