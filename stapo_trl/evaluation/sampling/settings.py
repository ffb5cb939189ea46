"""How samples are drawn. The backend gets every field, so that a model's own defaults cannot change a result."""

import argparse
import json
from dataclasses import dataclass


# Never left to the model: a generation_config once made "temperature 1.0" nearly greedy
FIXED = {
    "top_k": 0,
    "min_p": 0.0,
    "repetition_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
}


def parse_chat_template_kwargs(text: str) -> dict:
    """The variables of a chat template in an argument of a command."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise argparse.ArgumentTypeError(f"expected JSON such as '{{\"enable_thinking\": false}}', got {text!r}")
    return value


CHAT_TEMPLATE_KWARGS = {
    "type": parse_chat_template_kwargs,
    "metavar": "JSON",
    "help": "variables of the chat template, as in training: '{\"enable_thinking\": false}'",
}


@dataclass(frozen=True)
class SamplingSettings:
    """
    How samples are drawn.

    Args:
        temperature (`float`, defaults to `0.7`):
            0 decodes greedily.
        top_p (`float`, defaults to `0.9`):
            Probability mass that is sampled from, in (0, 1].
        max_new_tokens (`int`, defaults to `20480`):
            Longest answer, in tokens.
        seed (`int`, defaults to `0`):
            Seeds each sample, together with its problem and its number.

    Raises:
        `ValueError`: for a value out of range.

    Example:

    ```python
    >>> SamplingSettings(temperature=1.0, top_p=1.0).label
    't1.0-p1.0'
    ```
    """

    temperature: float = 0.7
    top_p: float = 0.9
    max_new_tokens: int = 20480
    seed: int = 0

    def __post_init__(self):
        if not 0 <= self.temperature < float("inf"):
            raise ValueError(f"`temperature` must be 0 (greedy) or positive, got {self.temperature}.")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"`top_p` must be in (0, 1], got {self.top_p}; 1 samples from all tokens.")
        if self.max_new_tokens < 1:
            raise ValueError(f"`max_new_tokens` must be at least 1, got {self.max_new_tokens}.")

    @property
    def label(self) -> str:
        """Name of this decoding, for files and tables."""
        if self.temperature == 0:
            return "greedy"
        return f"t{float(self.temperature)}-p{float(self.top_p)}"

    def check_n(self, n: int) -> None:
        """Refuse a number of samples that contradicts these settings."""
        if n < 1:
            raise ValueError(f"`n` must be at least 1, got {n}.")
        if n > 1 and self.temperature == 0:
            raise ValueError(
                f"At temperature 0 all {n} samples of a problem are the same: give n=1, or a temperature above 0."
            )


# The paper's two decodings (temperature/top-p 1.0/1.0 and 0.7/0.9) and samples per problem
PAPER_DECODINGS = (SamplingSettings(1.0, 1.0), SamplingSettings(0.7, 0.9))
PAPER_SAMPLES = {"aime24": 32, "aime25": 32, "amc23": 32}
PAPER_SAMPLES_OTHERWISE = 4
