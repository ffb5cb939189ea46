"""The text of prompts and completions, chat or plain."""

from collections.abc import Iterable, Mapping


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
