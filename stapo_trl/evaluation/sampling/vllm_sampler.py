"""Sampling with vLLM."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

from ..samples import Request, Sample
from .policy import (
    base_of,
    check_chat_template,
    end_tokens,
    find_config,
    fingerprint,
    load_tokenizer,
    read_prompt,
    read_response,
)
from .settings import FIXED, SamplingSettings


class VLLMSampler:
    """
    Samples with one vLLM engine, which gets all requests at once.

    Args:
        model (`str`):
            Folder or hub name of a model or a LoRA adapter, loaded at the first sample.
        revision (`str`, *optional*):
            Branch, tag or commit on the hub.
        chat_template_kwargs (`Mapping`, *optional*):
            Variables of the chat template, as in training, such as `{"enable_thinking": False}`.
        **engine_args:
            Other arguments of `vllm.EngineArgs`, such as `tensor_parallel_size`.
    """

    backend = "vllm"

    def __init__(
        self, model: str, revision: str | None = None, chat_template_kwargs: Mapping | None = None, **engine_args
    ):
        self.model, self.revision, self.engine_args = model, revision, engine_args
        self.chat_template_kwargs = dict(chat_template_kwargs or {})

    @cached_property
    def fingerprint(self) -> str:
        """Identifies the weights."""
        return fingerprint(self.model, self.revision)

    @cached_property
    def _loaded(self):
        from peft import PeftConfig
        from transformers import AutoConfig, GenerationConfig
        from vllm import EngineArgs, LLMEngine
        from vllm.lora.request import LoRARequest

        base = base_of(self.model, self.revision)
        revision = None if base else self.revision
        options = {"model": base or self.model, "revision": revision, "enable_prefix_caching": True}
        # The model's own generation defaults must not apply
        options |= {"generation_config": "vllm", "disable_log_stats": True}
        adapter = None
        if base:
            options |= {
                "enable_lora": True,
                "max_lora_rank": PeftConfig.from_pretrained(self.model, revision=self.revision).r,
            }
            adapter = LoRARequest("policy", 1, str(find_config(self.model, self.revision).parent))
        tokenizer = load_tokenizer(self.model, self.revision)
        check_chat_template(tokenizer, self.chat_template_kwargs)
        config = AutoConfig.from_pretrained(options["model"], revision=revision)
        try:
            own = GenerationConfig.from_pretrained(options["model"], revision=revision)
        except OSError:
            own = None  # a model without one declares its end tokens elsewhere
        ends = end_tokens(tokenizer, config.get_text_config(), config, own)
        return LLMEngine.from_engine_args(EngineArgs(**options | self.engine_args)), tokenizer, ends, adapter

    def sample(self, requests: Sequence[Request], settings: SamplingSettings) -> Iterator[list[Sample]]:
        """Yields samples without verdicts and entropies, as they end."""
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        engine, tokenizer, ends, adapter = self._loaded
        prompts = []
        for index, request in enumerate(requests):
            digest = hashlib.sha256(request.seed(settings.seed).encode()).digest()
            params = SamplingParams(
                temperature=settings.temperature,
                top_p=settings.top_p,
                max_tokens=settings.max_new_tokens,
                seed=int.from_bytes(digest[:4], "big"),
                stop_token_ids=sorted(ends),
                detokenize=False,
                output_kind=RequestOutputKind.FINAL_ONLY,
                **FIXED,
            )
            prompts.append(read_prompt(tokenizer, request.problem.prompt, self.chat_template_kwargs))
            engine.add_request(str(index), {"prompt_token_ids": prompts[-1]}, params, lora_request=adapter)
        while engine.has_unfinished_requests():
            outputs = [output for output in engine.step() if output.finished]
            if outputs:
                yield [
                    self._sample(requests[index], output.outputs[0], prompts[index], tokenizer)
                    for index, output in ((int(output.request_id), output) for output in outputs)
                ]

    @staticmethod
    def _sample(request: Request, output, prompt: Sequence[int], tokenizer) -> Sample:
        tokens = list(output.token_ids)
        return Sample(
            *request.key,
            checksum=request.problem.checksum,
            text=read_response(tokenizer, prompt, tokens),
            num_tokens=len(tokens),
            truncated=output.finish_reason != "stop",
        )

    def close(self) -> None:
        """Free the engine's memory."""
        self.__dict__.pop("_loaded", None)
