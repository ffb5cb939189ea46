"""Where a response ends, and which part of it is thought: the markers of many models, as text."""

import re


OPENING = re.compile(
    r"(?i:<(?:[a-z]{1,20}[:_])?(?:think|thinking|thoughts?|reasoning)>)"  # also <seed:think>
    r"|\[THINK\]|◁think▷|<\|begin_of_thought\|>|<\|START_THINKING\|>|<\|inner_prefix\|>"
    r"|<\|(?:think|thinking|thought)(?:_start)?\|>"
    r"|<\|channel\|>(?:analysis|commentary)[^<\n]{0,80}<\|message\|>"
    r"|<\|channel>thought(?![a-z])|<unused94>thought(?![a-z])"
)
CLOSING = re.compile(
    r"(?i:</(?:[a-z]{1,20}[:_])?(?:think|thinking|thoughts?|reasoning)>)"
    r"|\[/THINK\]|◁/think▷|<\|end_of_thought\|>|<\|END_THINKING\|>|<\|inner_suffix\|>"
    r"|<\|/(?:think|thinking|thought)\|>|<\|(?:think|thinking|thought)_end\|>"
    r"|<\|channel\|>final[^<\n]{0,80}<\|message\|>"
    r"|<channel\|>|<unused95>"
)
# The model's own header, with which a saved response may begin
HEADER = re.compile(
    r"\s*(?:<s>|<bos>|<\|begin_of_text\|>|<｜begin▁of▁sentence｜>)?\s*"
    r"(?:<\|im_start\|>assistant|<\|start_header_id\|>assistant<\|end_header_id\|>|<start_of_turn>model|<\|turn>model"
    r"|<\|START_OF_TURN_TOKEN\|><\|CHATBOT_TOKEN\|>|<\|assistant\|>|<｜Assistant｜>|<\|start\|>assistant)?\s*"
)
# The end of a turn, or the beginning of another. Between the channels of gpt-oss, <|end|> is neither
TURN_END = re.compile(
    r"(?i:<\|(?:im_end|im_start|eot_id|eot|eom_id|eos|eod|end_of_text|endoftext|end_of_turn|endofturn|end_of_sentence|"
    r"end_of_turn_token|end_response|return|start_header_id|start_of_turn_token|user|system|assistant|observation|"
    r"role_end)\|>)"
    r"|<\|end\|>(?!\s*<\|start\|>assistant)|<\|start\|>(?!assistant)"
    r"|</s>|<eos>|<end_of_turn>|<start_of_turn>|<turn\|>|<\|turn>|<end_of_utterance>"
    r"|<｜end▁of▁sentence｜>|<｜User｜>|<｜Assistant｜>|\[INST\]"
)
SPECIAL = re.compile(r"<\|[A-Za-z_]{1,20}\|>")
ENDS_OPEN = re.compile(rf"(?:{OPENING.pattern})\s*\Z")


def is_marked(text: str) -> bool:
    """Whether a text can hold a marker at all: most do not, and are read faster."""
    return "<" in text or "◁" in text or "THINK]" in text or "[INST]" in text


def cut_turn(response: str) -> str:
    """The model's own turn: without its header, and without what stands behind an end-of-turn marker."""
    if not is_marked(response):
        return response
    response = response[HEADER.match(response).end() :]
    for end in TURN_END.finditer(response):
        if end[0] != "</s>" or "<s>" not in response[: end.start()]:  # else text that is struck out, in HTML
            return response[: end.start()]
    return response


def strip_thinking(response: str) -> str | None:
    """The response after its thinking part, up to the end of the turn; `None` if the thinking never ends."""
    if not is_marked(response):
        return response
    response = cut_turn(response)
    closings = list(CLOSING.finditer(response))
    start = closings[-1].end() if closings else 0
    if OPENING.search(response, start):
        return None
    return SPECIAL.sub("", response[start:])


def find_open_tag(prompt: str) -> str:
    """
    The opening tag of a thought with which a prompt ends, and the white space behind it; "" for any other prompt.

    Example:

    ```python
    >>> find_open_tag("<|im_start|>assistant\\n<think>\\n"), find_open_tag("Write <think> first."), find_open_tag("<think></think>")
    ('<think>\\n', '', '')
    ```
    """
    found = ENDS_OPEN.search(prompt[-200:])
    return found[0] if found else ""


def write_as_think(text: str) -> str:
    """The text with `<think>` and `</think>` for the markers of any model."""
    return CLOSING.sub("</think>", OPENING.sub("<think>", text))
