"""The text of a completion, chat or plain."""


def completion_text(completion: str | list[dict]) -> str:
    """What the model wrote last.

    Args:
        completion (`str` or `list[dict]`): A plain completion, or the messages of a chat (several after tool calls).

    Returns:
        `str`: The content of the last assistant message (of the last message if none says its role); "" where the
        content is `None`. The text parts of a content list are joined.

    Example:
    ```python
    >>> completion_text([{"role": "assistant", "content": "5"}, {"role": "tool", "content": "7"}])
    '5'
    ```
    """
    if isinstance(completion, str):
        return completion
    spoken = [message for message in completion or [] if message.get("role", "assistant") == "assistant"]
    content = spoken[-1].get("content") if spoken else None
    if isinstance(content, list):
        return "".join(part.get("text") or "" for part in content if part.get("type", "text") == "text")
    return content or ""
