"""Reads problem and gold from a row of any known shape."""

import contextlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from ...rewards.completion import completion_text, shorten
from ..gold import gold_text
from .choices import Choices
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
    choices = _read_choices(row, columns)
    system, problem = _question(row, columns)
    if isinstance(choices, Choices):
        problem, solution = choices.append_to(problem), _find_letter(row, columns, choices)
        f"{system}{problem}".encode()
        return Row(problem, solution, system)
    if choices and choices not in problem:  # a text that lists them
        problem = f"{problem}\n{choices}"
    try:
        solution = gold_text(value_at(row, columns.gold))
    except ValueError:
        worked = value_at(row, columns.worked) if columns.worked else None
        if not isinstance(worked, str) or not MARKED.search(worked):
            raise
        solution = gold_text(worked)
    f"{system}{problem}{solution}".encode()  # half a character, as in "\ud800", fails here, not in Arrow
    return Row(problem, solution, system)


def _question(row: Mapping, columns: Columns) -> tuple[str | None, str]:
    """System message and question of a row, behind the texts that come before it."""
    contexts = []
    for path in columns.contexts:
        value = value_at(row, path)
        if _is_empty(value):
            continue
        if not isinstance(value, str):
            raise ValueError(f"the column {path[-1]!r} holds more of the problem, but no text: {shorten(value)}")
        contexts.append(value.strip())
    system, problem = question(value_at(row, columns.problem))
    contexts = [text for text in contexts if text not in problem]
    # "Solve this problem:" stands before its input, everything else behind its context
    is_instruction = columns.problem[-1].casefold().endswith("instruction")
    return system, "\n".join([problem, *contexts] if is_instruction else [*contexts, problem])


def _read_choices(row: Mapping, columns: Columns) -> Choices | str | None:
    """The choices of a row, as text where that lists them in a form of its own; `None` if it has none."""
    values = {path[-1]: value for path in columns.choices if not _is_empty(value := value_at(row, path))}
    if not values:
        return None
    is_by_letter = len(columns.choices) > 2
    named = ", ".join(map(repr, values))
    if not is_by_letter and len(values) > 1:
        raise ValueError(f"there are choices in several columns, {named}")
    value = values if is_by_letter else next(iter(values.values()))
    if isinstance(value, str) and not value.lstrip().startswith(("[", "{")):
        return value.strip()
    try:
        return Choices(value)
    except ValueError as error:
        raise ValueError(f"the column {named} cannot be read: {error}") from error


def _find_letter(row: Mapping, columns: Columns, choices: Choices) -> str:
    """The letter of the right choice, by the gold or another column that tells it."""
    flaws = []
    for path in (columns.gold, *columns.keys):
        value = value_at(row, path)
        if _is_empty(value):
            continue
        try:
            return choices.find_letter(value, path in columns.positions)
        except ValueError as error:
            flaws.append(error)
    raise flaws[0] if flaws else ValueError("there is no gold answer")


def _is_empty(value: object) -> bool:
    """Whether a cell holds nothing, as which pandas writes NaN."""
    if isinstance(value, list | Mapping):
        return all(map(_is_empty, value.values() if isinstance(value, Mapping) else value))
    return value is None or value != value or not str(value).strip()


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
