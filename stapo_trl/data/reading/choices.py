"""Multiple choice: the choices of a row in all the shapes in use, and the letter of the right one."""

import ast
import json
import re
from collections.abc import Mapping
from numbers import Real

from ...rewards.completion import shorten
from ..gold import gold_text


LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


class Choices:
    r"""
    The choices of a problem, `value` as a data set stores them; `ValueError` if they cannot be read.

    Lists of texts, mappings of labels to texts, and lists or mappings of labels and texts are read, also as text.

    Example:

    ```python
    >>> choices = Choices({"text": ["three", "four"], "label": ["1", "2"]})
    >>> print(choices.append_to("2+2=?"))
    2+2=?
    <BLANKLINE>
    Answer with the letter of one of these choices:
    A. three
    B. four
    >>> [choices.find_letter(gold) for gold in ("2", "four")], Choices(["3", "4"]).find_letter(1)
    (['B', 'B'], 'B')
    ```
    """

    def __init__(self, value: object):
        pairs = _pairs(_open(value))
        if not 2 <= len(pairs) <= len(LETTERS):
            raise ValueError(f"there are {len(pairs)} choices, and only 2 to {len(LETTERS)} can be asked")
        if not all(isinstance(text, str | Real) and not isinstance(text, bool) for _, text in pairs):
            raise ValueError(f"the choices are no texts: {shorten(value)}")
        self.are_numbers = all(isinstance(text, Real) for _, text in pairs)
        self.labels, self.texts = [str(label) for label, _ in pairs], [str(text).strip() for _, text in pairs]
        # "A) 21", with its letter
        own = [re.match(rf"\(?{letter}\s*[).:]\s*", text) for letter, text in zip(LETTERS, self.texts, strict=False)]
        if all(own):
            self.texts = [text[found.end() :] for text, found in zip(self.texts, own, strict=True)]

    def append_to(self, problem: str) -> str:
        """The problem with its choices, unless it lists them already."""
        lettered = list(zip(LETTERS, self.texts, strict=False))
        if all(text in problem and re.search(rf"\b{letter}\s*[).:]", problem) for letter, text in lettered):
            return problem
        lines = [f"{letter}. {text}" for letter, text in lettered]
        return "\n".join([problem, "", "Answer with the letter of one of these choices:", *lines])

    def find_letter(self, gold: object, is_position: bool = False) -> str:
        """The letter of the right choice, of which `gold` is the label, the text, or the position from 0."""
        if isinstance(gold, list | tuple) and len(gold) == 1:
            gold = gold[0]
        if isinstance(gold, float) and gold.is_integer():
            gold = int(gold)
        text = "" if gold is None or isinstance(gold, bool) else str(gold).strip()
        found = {
            index
            for index, (label, choice) in enumerate(zip(self.labels, self.texts, strict=True))
            if text.upper().strip("(). ") == label.upper()
            or text == choice
            or re.fullmatch(rf"\(?{re.escape(label)}\s*[).:]\s*{re.escape(choice)}", text)
        }
        if re.fullmatch(r"\d{1,2}", text) and text not in self.labels:
            position = {int(text)} if int(text) < len(self.texts) else set()
            # A number beside texts is a position, and beside numbers one of them
            if is_position or isinstance(gold, int) and not self.are_numbers:
                found = position
            elif not isinstance(gold, int) or not found:
                found |= position
        if len(found) > 1:
            raise ValueError(
                f"the gold answer {shorten(gold)} may be the text or the position of a choice, {shorten(self.texts)}"
            )
        if not found and isinstance(gold, str) and (answer := gold_text(gold)) != gold:
            return self.find_letter(answer)  # of a worked solution
        if not found:
            raise ValueError(f"the gold answer {shorten(gold)} is none of the choices, {shorten(self.texts)}")
        return LETTERS[found.pop()]


def _open(value: object) -> object:
    """What a list or mapping that is stored as text stands for."""
    if hasattr(value, "tolist"):  # numpy
        value = value.tolist()
    if isinstance(value, str) and value.lstrip().startswith(("[", "{")):
        for read in (json.loads, ast.literal_eval):
            try:
                return read(value)
            except (ValueError, SyntaxError, RecursionError, MemoryError):
                continue
    return value


def _pairs(value: object) -> list[tuple[object, object]]:
    """The label and the text of each choice."""
    if isinstance(value, Mapping):
        if {"text", "label"} <= value.keys() and isinstance(value["text"], list):
            return list(zip(value["label"], value["text"], strict=True))
        return [(label, text) for label, text in value.items() if text is not None]
    if isinstance(value, list | tuple):
        if all(isinstance(choice, Mapping) and {"text", "label"} <= choice.keys() for choice in value):
            return [(choice["label"], choice["text"]) for choice in value]
        return list(zip(LETTERS, value, strict=False)) if len(value) <= len(LETTERS) else [("", "")] * len(value)
    raise ValueError(f"the choices are neither a list nor a mapping: {shorten(value)}")
