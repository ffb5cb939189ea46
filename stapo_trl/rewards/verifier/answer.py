"""Extracts the final answer from a response, and the answer from a gold as data sets store it."""

import re

from .text.brackets import braced
from .text.thinking import strip_thinking


BOX = re.compile(r"\\(?:boxed|fbox|framebox)\s*(?=[{\d\w])|(?<![A-Za-z\\])boxed(?=\{)")
# What may separate two boxes that form one answer: x = \boxed{1} and y = \boxed{2}
BETWEEN = re.compile(
    r"(?:[\s,;、，$]|\\[()\[\],;! ]|\\q?quad|\\text\{\s*(?:and|or|,|\s)*\s*\}|\b(?:and|or)\b|和|或|与|"
    r"(?<![A-Za-z])[A-Za-z](?:_\{?\w\}?)?\s*=)*"
)
NOTHING = re.compile(r"(?:[\s$~?.…_]|\\[,;:!\[\]() ]|\\q?quad|\\(?:text|mathrm)\{\s*\}|\\l?dots|\\(?:square|Box)\b)*")
MARKER = re.compile(
    r"####(?!#)[ \t]*"
    r"|(?<![A-Za-z])answers?(?![A-Za-z])[ \t]*(?:\*\*|__)?[ \t]*(?:is)?[ \t]*(?:\*\*|__)?[ \t]*[:：]"
    r"|(?<![A-Za-z])answers?(?:[ \t]+to[^.\n]{0,80}?)?[ \t]+(?:is|are|equals|should be)\b(?:[ \t]+(?:therefore|thus|simply|just|then))?[ \t]*:?"
    r"|(?m:^)[ \t*#_]*(?:final[ \t]+)?answer[ \t*_]+(?=\$|\\[(\[])"
    r"|(?:最终|最后)?(?:的)?答案(?:是|为|：|:)[：:]?|答[：:]",
    re.IGNORECASE,
)
HEADING = re.compile(r"^[# \t*_]*(?:the )?final answer[ \t*_:：]*$", re.IGNORECASE | re.MULTILINE)
# "this answer is consistent with ..." states nothing
PROSE = re.compile(r"[ \t*_]*[a-z]")
BARE_BOX = re.compile(r"-?\d+(?:\.\d+)?|\w")
BOLD = re.compile(r"\*\*([^*\n]+)\*\*")
# A longer line after "Answer:" is prose
MAX_STATED = 500
# "The largest n is 34"
SENTENCE = re.compile(r"[A-Z][a-z]*\s[^.]*\s(?:is|are|equals)\s*:?\s*(?=[^\sa-z])")
REASON = re.compile(
    r",?\s+(?:because|since|as|so|which|where|when|after|obtained|given|based|using)\b.*|"
    r"[.。](?=\s+\S|\s*$).*|。.*|\s*(?:I hope|因为).*",
    re.DOTALL,
)


def _boxes(text: str) -> list[tuple[int, int, str | None]]:
    """(start, end, content) of every box; the content of a box that never closes is `None`."""
    boxes = []
    position = 0
    while match := BOX.search(text, position):
        at = match.end()
        if text[at : at + 1] == "{":
            group = braced(text, at)
            content, position = group if group else (None, len(text))
        else:
            bare = BARE_BOX.match(text, at)  # \boxed 5
            content, position = bare[0], bare.end()
        boxes.append((match.start(), position, content))
    return boxes


def _content(content: str | None) -> str | None:
    """The answer in a box, with boxes inside it opened; `None` for an empty one."""
    if content is None:
        return None
    for _ in range(5):
        inner = BOX.search(content)
        if not inner:
            break
        group = braced(content, inner.end()) if content[inner.end() : inner.end() + 1] == "{" else None
        if group is None:
            break
        content = content[: inner.start()] + group[0] + content[group[1] :]
    return None if NOTHING.fullmatch(content) else content.strip()


def _boxed(text: str) -> tuple[bool, str | None]:
    """Whether there is a box, and the answer in the last one joined with its direct neighbours."""
    boxes = _boxes(text)
    if not boxes:
        return False, None
    contents = [_content(boxes[-1][2])]
    for before, after in zip(boxes[-2::-1], boxes[:0:-1], strict=True):
        between = text[before[1] : after[0]]
        if len(between) > 60 or "\n\n" in between or not BETWEEN.fullmatch(between) or contents[0] is None:
            break
        contents.insert(0, _content(before[2]))
    if None in contents:
        return True, None
    return True, ", ".join(dict.fromkeys(contents))


def _stated(text: str) -> str | None:
    """The answer after the last explicit form, such as "Answer:"."""
    lower = text.lower()
    closing = lower.rfind("</answer>")
    opening = lower.rfind("<answer>", 0, max(closing, 0))
    if opening >= 0:
        return _trim(text[opening + len("<answer>") : closing])
    found = [*MARKER.finditer(text), *HEADING.finditer(text)]
    if found:
        found = max(found, key=lambda match: (not PROSE.match(text, match.end()), match.end()))
        rest = text[found.end() :].lstrip(" \t*_:：")
        if not rest.strip():
            return None
        lines = [line for line in rest.strip().split("\n\n")[0].split("\n") if line.strip(" *_")]
        # A display formula may span lines; everything else ends with its line.
        opener = lines[0].strip() if lines else ""
        if opener.startswith((r"\[", "$$")):
            closer = r"\]" if opener.startswith(r"\[") else "$$"
            body = rest.strip()[2:]
            return _trim(body.split(closer)[0]) if closer in body else None
        return _trim(opener)
    last = text.rstrip().rsplit("\n", 1)[-1]
    bold = BOLD.findall(last)
    if len(bold) == 1:
        return _trim(bold[0])
    return None


def _trim(text: str) -> str | None:
    text = text.strip().strip("*_").strip()
    if len(text) > MAX_STATED:
        return None
    if text[:1] == "$" and text.count("$") == 2 or text[:2] == r"\(" and text.count(r"\(") == 1 == text.count(r"\)"):
        # one formula and nothing but the end of the sentence or its reason
        closer = "$" if text[0] == "$" else r"\)"
        end = text.index(closer, 1) + len(closer)
        if re.fullmatch(r"\s*(?:[.,;:!。*]|" + REASON.pattern + ")*", text[end:], re.DOTALL):
            text = text[:end]
    text = REASON.sub("", text.replace("**", "")).strip()
    sentence = SENTENCE.match(text)
    text = text[sentence.end() :] if sentence else text
    return None if NOTHING.fullmatch(text) else text


def last_box(text: str) -> str | None:
    r"""The raw content of the last `\boxed{}`, for exact matching; `None` if there is none or it is cut off."""
    start = text.rfind(r"\boxed{")
    group = braced(text, start + len(r"\boxed")) if start >= 0 else None
    return group[0] if group else None


def final_answer(response: str, require_box: bool = False) -> str | None:
    r"""The text of the final answer in a response, or `None` if it gives none.

    The last box after the thinking part counts, together with boxes right next to it (they form a list). Without a box,
    an explicit form counts: `Answer: ...`, `The answer is ...`, `#### ...`, `<answer>...</answer>`, 答案是..., or one
    bold answer in the last line. A number that merely occurs in the text never counts. An empty or cut-off box is no
    answer, and neither is thinking that never ends.

    Args:
        response (`str`): The completion alone, without its prompt.
        require_box (`bool`, *optional*, defaults to `False`): Whether only a box counts.

    Returns:
        `str` or `None`: Source text, not normalised.

    Example:
    ```python
    >>> final_answer(r"<think>maybe \boxed{5}</think> So \boxed{2} and \boxed{3}.")
    '2, 3'
    >>> final_answer("There are 5 cases.") is None
    True
    ```
    """
    text = strip_thinking(response)
    if text is None:
        return None
    has_box, answer = _boxed(text)
    return answer if has_box or require_box else _stated(text)


def gold_answer(gold: object) -> str | None:
    r"""The text of a gold answer, or `None` if nothing can be graded against it (empty, malformed, a sentence).

    Text, ints, floats and lists of one are read; a worked solution is reduced to its box or its `#### ` line.

    Example:
    ```python
    >>> gold_answer("48/2 = 24 clips.\n#### 1,080"), gold_answer(27.0), gold_answer("\\sqrt{")
    ('1,080', '27', None)
    ```
    """
    if hasattr(gold, "tolist"):  # of numpy or torch
        gold = gold.tolist()
    if isinstance(gold, (list, tuple)) and len(gold) == 1:
        gold = gold[0]
    if isinstance(gold, bool) or gold is None:
        return None
    if isinstance(gold, float):
        gold = format(gold, ".15g")
    text = str(gold).strip() if isinstance(gold, (str, int)) else ""
    has_box, boxed = _boxed(text)
    if has_box:
        text = boxed or ""
    elif "####" in text:
        text = text.rsplit("####", 1)[1].strip().split("\n")[0]
    return text if _gradable(text) else None


def _gradable(text: str) -> bool:
    if not text or len(text) > 4000 or NOTHING.fullmatch(text) or text.lower() in ("none", "nan", "null", "n/a"):
        return False
    depth = 0
    for brace in re.findall(r"(?<!\\)[{}]", text):
        depth += 1 if brace == "{" else -1
        if depth < 0:
            return False
    if depth or re.search(r"\\(?:frac|sqrt|binom|[dt]frac)\s*(?:\{\s*\}|\{[^{}]*\}\s*\{\s*\}|[\s$]*$)", text):
        return False
    if re.search(r"(?:[=^_*/\\+]|\\(?:cdot|times|pm|le|ge))[\s$]*$", text) or not re.search(
        r"\w|\\[a-zA-Z]|∞|∅|√", text
    ):
        return False
    if text.count("(") + text.count("[") != text.count(")") + text.count("]") and "]" not in text and "[" not in text:
        return False
    words = re.findall(r"[A-Za-z]{2,}", re.sub(r"\\[A-Za-z]+", " ", text))
    return len(words) <= 10
