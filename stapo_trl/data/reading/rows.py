"""Reads problem and gold from a row of any known shape."""

import contextlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from ...rewards.completion import completion_text
from ..gold import gold_text
from .columns import Columns, value_at


MARKED = re.compile(r"\\(?:boxed|fbox|framebox)|####")  # a worked solution that says where its answer is


@dataclass(frozen=True)
class Row:
    """Problem and gold of a row, and the system message before the problem."""

    problem: str
    solution: str
    system: str | None = None


def read_row(row: Mapping, columns: Columns) -> Row:
    """Problem and gold of a row; `ValueError` with the reason if the row cannot be used."""
    system, problem = question(value_at(row, columns.problem))
    try:
        solution = gold_text(value_at(row, columns.gold))
    except ValueError:
        worked = value_at(row, columns.worked) if columns.worked else None
        if not isinstance(worked, str) or not MARKED.search(worked):
            raise
        solution = gold_text(worked)
    f"{system}{problem}{solution}".encode()  # half a character, as in "\ud800", fails here, not in Arrow
    return Row(problem, solution, system)


def question(prompt: object) -> tuple[str | None, str]:
    """System message and question of a prompt, chat or plain."""
    if isinstance(prompt, str) and prompt.startswith("[{"):  # a chat in a CSV
        with contextlib.suppress(ValueError, RecursionError):
            prompt = json.loads(prompt)
    if isinstance(prompt, list) and all(isinstance(message, Mapping) for message in prompt):
        said: dict[str, list[str]] = {}
        for message in prompt:
            speaker = message.get("role") or message.get("from") or "user"
            content = message.get("content") or message.get("value")
            if not isinstance(speaker, str):
                raise ValueError(f"a message of the chat has no role but {str(speaker)[:60]}")
            if isinstance(content, list) and any(
                isinstance(part, Mapping) and part.get("type", "text") != "text" for part in content
            ):
                raise ValueError("the chat holds more than text (an image?), and only text is read")
            role = {"human": "user", "developer": "system"}.get(speaker, speaker)
            said.setdefault(role, []).append(completion_text([{"content": content}]))
        asked = said.get("user", [])
        if len(asked) > 1:
            raise ValueError(f"the chat asks {len(asked)} questions, and only single ones can be graded")
        system, problem = "\n".join(said.get("system", [])) or None, "".join(asked)
    else:
        system, problem = None, prompt
    if not isinstance(problem, str) or not problem.strip():
        raise ValueError("there is no problem")
    return system, problem
