"""The text of prompts and completions, chat or plain, and what a chat template makes of them."""

import re
from collections.abc import Iterable, Mapping, Sequence

from .verifier.text.thinking import CLOSING, OPENING, find_open_tag, write_as_think


# Where a parsed completion keeps its thoughts
THOUGHTS = ("reasoning_content", "thinking", "reasoning")
SPECIAL_TAG = re.compile(rf"{OPENING.pattern}|{CLOSING.pattern}|channel")


def completion_text(completion: str | list[dict]) -> str:
    """The content of the last assistant message of a chat, or a plain completion as it is; "" for no content.

    A message without a role counts as the assistant's, and the text parts of a content list are joined. Raises
    `ValueError` for anything that is neither text nor messages.

    Example:
    ```python
    >>> completion_text([{"role": "assistant", "content": "5"}, {"role": "tool", "content": "7"}])
    '5'
    ```
    """
    text = completion
    if isinstance(text, Iterable) and not isinstance(text, str | bytes | Mapping):
        messages = list(text)
        if not all(isinstance(message, Mapping) for message in messages):
            raise ValueError(f"A chat is a list of messages, each a dict with role and content, got {shorten(text)}.")
        spoken = [message for message in messages if (message.get("role") or "assistant") == "assistant"]
        text = spoken[-1].get("content") if spoken else None
        if isinstance(text, list):
            text = "".join(map(_part_text, text))
    if not isinstance(text, str | None):
        raise ValueError(f"A completion is text or a list of messages with text in them, got {shorten(completion)}.")
    return text or ""


def read_responses(completions: Sequence, prompts=None, completion_ids=None, log_extra=None, **columns) -> list[str]:
    """The responses as the policy wrote them, from what TRL hands to a reward function.

    Where the prompt ends inside a thought, its opening tag stands before the response: without a closing one, the
    response has no answer. Of a conversation, the end of the prompt is the chat template's and not in `prompts`. The
    trainer knows it, whose method `log_extra` is; it also knows thoughts that were parsed out of a completion, and tags
    that are special tokens and so missing in the text.
    """
    texts = list(map(completion_text, completions))
    if prompts is not None and len(prompts) != len(texts):
        raise ValueError(f"Got {len(texts)} completions and {len(prompts)} prompts: pass one prompt per completion.")
    trainer = getattr(log_extra, "__self__", None)
    open_tags = [""] * len(texts) if prompts is None else _find_open_tags(prompts, trainer)
    processing_class = getattr(trainer, "processing_class", None)
    tokenizer = getattr(processing_class, "tokenizer", processing_class)
    parses = any(getattr(tokenizer, name, None) is not None for name in ("response_template", "response_schema"))
    has_tags = has_special_tags(tokenizer)
    for index, (completion, open_tag) in enumerate(zip(completions, open_tags, strict=True)):
        thoughts = _parsed_thoughts(completion)
        ids = None if completion_ids is None else completion_ids[index]
        if thoughts is not None:
            texts[index] = f"<think>{thoughts}</think>{texts[index]}"
        elif parses and ids is not None and not isinstance(completion, str):
            # The parser leaves no trace of a thought that was closed at once
            written = write_as_think(open_tag + tokenizer.decode(ids))
            if written.rfind("<think>") > written.rfind("</think>"):
                texts[index] = f"<think>{texts[index]}"
        elif has_tags and ids is not None:
            texts[index] = write_as_think(open_tag + decode_response(tokenizer, ids))
        elif open_tag:
            texts[index] = write_as_think(open_tag + texts[index])
    return texts


def _find_open_tags(prompts: Sequence, trainer: object) -> list[str]:
    """The opening tag of a thought with which each prompt ends, as the policy read it; "" for none."""
    processing_class = getattr(trainer, "processing_class", None)
    options = {
        "chat_template": getattr(trainer, "chat_template", None),
        "tools": getattr(trainer, "tools", None) or None,
    }
    options |= getattr(trainer, "chat_template_kwargs", None) or {}
    template = options["chat_template"] or getattr(processing_class, "chat_template", None)
    opens = bool(template) and (not isinstance(template, str) or OPENING.search(template) is not None)
    found, tags = {}, []
    for prompt in prompts:
        if isinstance(prompt, str):
            tags.append(find_open_tag(prompt))
        elif opens:
            key = repr(prompt)
            if key not in found:
                found[key] = find_open_tag(render_chat(processing_class, prompt, **options))
            tags.append(found[key])
        else:
            tags.append("")
    return tags


def _parsed_thoughts(completion: object) -> str | None:
    """The thoughts that a parser has put beside the content of the last assistant message."""
    if isinstance(completion, str) or not isinstance(completion, Iterable):
        return None
    spoken = [message for message in completion if (message.get("role") or "assistant") == "assistant"]
    texts = [spoken[-1][name] for name in THOUGHTS if isinstance(spoken[-1].get(name), str)] if spoken else []
    return texts[0] if texts else None


def decode_response(tokenizer, ids: Sequence[int]) -> str:
    """The text of a completion without special tokens, unless some of them begin or end thoughts."""
    if not has_special_tags(tokenizer):
        return tokenizer.decode(ids, skip_special_tokens=True)
    text = tokenizer.decode(ids, skip_special_tokens=False)
    for token in filter(None, (tokenizer.bos_token, tokenizer.eos_token, tokenizer.pad_token)):
        text = text.replace(token, "")
    return text


def has_special_tags(tokenizer) -> bool:
    """Whether special tokens begin or end a thought, which decoding without special tokens would lose."""
    return any(SPECIAL_TAG.search(token) for token in getattr(tokenizer, "all_special_tokens", None) or ())


def render_chat(processing_class, messages: list[dict], **options) -> str:
    """The prompt that a chat template makes of messages, for the policy to answer; `ValueError` where it refuses them.

    Args:
        processing_class (`PreTrainedTokenizerBase` or `ProcessorMixin`): Whose template it is.
        messages (`list[dict]`): The conversation.
        **options: Variables of the template, as in `chat_template_kwargs` of [`~trl.GRPOConfig`].
    """
    from jinja2 import TemplateError

    try:
        return processing_class.apply_chat_template(messages, tokenize=False, add_generation_prompt=True, **options)
    except TemplateError as error:  # of Gemma for a system message, say
        raise ValueError(f"The chat template refuses the prompt {str(messages)[:80]}: {error}.") from error


def plain_messages(messages: list[dict]) -> list[dict]:
    """The messages with plain text as content: chat templates of text models would write a list as its `repr`."""
    return [message | {"content": completion_text([{"content": message.get("content")}])} for message in messages]


def _part_text(part: object) -> str:
    """The text of a part of a content list; "" for an image."""
    if isinstance(part, Mapping):
        part = part.get("text") if part.get("type", "text") == "text" else None
    return "" if part is None else str(part)


def shorten(value: object) -> str:
    """The `repr` of a value for a message, 60 characters at most."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
