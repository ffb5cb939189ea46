"""Brackets of normalised answers: what they enclose, and what stands outside them."""

import re


RELATION = re.compile(r"\\(?:le|ge|ne|in|approx|subset|equiv|mid|notin)(?![A-Za-z])|[=<>]")


def braced(text: str, start: int) -> tuple[str, int] | None:
    """The content of the brace group that opens at `start`, and the index after it; `None` if it is never closed."""
    depth = 0
    position = start
    while position < len(text):
        char = text[position]
        if char == "\\":
            position += 2
            continue
        if char == "{":
            depth += 1
        elif char == "}":
            depth -= 1
            if depth == 0:
                return text[start + 1 : position], position + 1
        position += 1
    return None


def split(text: str, separator: str) -> list[str]:
    """The parts between separators outside all brackets."""
    parts, depth, start, index = [], 0, 0, 0
    while index < len(text):
        char = text[index]
        if char == "\\":
            depth += {"{": 1, "}": -1}.get(text[index + 1 : index + 2], 0)
            index += 2 if text[index + 1 : index + 2] in "{}%$\\" else 1
            continue
        depth += (char in "([{") - (char in ")]}")
        if char == separator and depth <= 0:
            parts.append(text[start:index])
            start = index + 1
        index += 1
    parts.append(text[start:])
    return [part.strip() for part in parts if part.strip()]


def related(text: str) -> bool:
    """Whether a relation stands outside all brackets; the k=1 of a sum does not."""
    if not RELATION.search(text):
        return False
    for _ in range(12):
        flat = re.sub(r"\\[{}]|\\[lr](?:floor|ceil)", "", text)
        flat = re.sub(r"[(\[{][^()\[\]{}]*[)\]}]", "", flat)
        if flat == text:
            break
        text = flat
    return bool(RELATION.search(text))


def brackets(text: str) -> tuple[str, str, str] | None:
    """(opening, inside, closing) if one pair of brackets encloses the text; that of a set is an escaped brace."""
    for opening in (r"\{", "(", "["):
        if text.startswith(opening):
            break
    else:
        return None
    depth = index = 0
    while index < len(text):
        two = text[index : index + 2]
        if two in (r"\{", r"\}"):
            depth += 1 if two == r"\{" else -1
            index += 2
        elif text[index] == "\\":
            index += 1
            continue
        else:
            depth += (text[index] in "([{") - (text[index] in ")]}")
            index += 1
        if depth == 0:
            break
    if index != len(text) or depth:
        return None
    closing = r"\}" if opening == r"\{" else text[-1]
    if opening == r"\{" and not text.endswith(r"\}"):
        return None
    return opening, text[len(opening) : len(text) - len(closing)], closing


def ungroup(text: str) -> str:
    """The text without brackets that enclose one value: ((5)) is 5."""
    while (pair := brackets(text)) and pair[0] + pair[2] == "()" and len(split(pair[1], ",")) == 1:
        text = pair[1].strip()
    while text.startswith("{") and text.endswith("}") and text.count("{") == text.count("}"):
        inner, depth = text[1:-1], 0
        for char in inner:
            depth += (char == "{") - (char == "}")
            if depth < 0:
                return text
        text = inner.strip()
    return text
