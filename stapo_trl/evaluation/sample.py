"""What is asked and what came back: a request for one sample of a problem, and the sample."""

import hashlib
import json
from dataclasses import asdict, dataclass
from functools import cached_property


@dataclass(frozen=True)
class Problem:
    """
    A problem of a benchmark.

    Args:
        benchmark (`str`):
            Name of the benchmark.
        problem_id (`str`):
            Name of the problem, unique in its benchmark.
        prompt (`str` or `list[dict]`):
            Plain text, or messages.
        solution (`str`):
            The gold answer.
    """

    benchmark: str
    problem_id: str
    prompt: str | list[dict[str, str]]
    solution: str

    @cached_property
    def checksum(self) -> str:
        """Of the prompt: a sample of another prompt is not taken for one of this problem."""
        return hashlib.sha256(json.dumps(self.prompt).encode()).hexdigest()[:12]


@dataclass(frozen=True)
class Request:
    """
    One sample that is asked for.

    Args:
        problem ([`Problem`]):
            The problem.
        number (`int`):
            Which of its samples, from 0.
    """

    problem: Problem
    number: int

    @property
    def key(self) -> tuple[str, str, int]:
        return self.problem.benchmark, self.problem.problem_id, self.number

    def seed(self, seed: int) -> str:
        """Seed of this sample: it depends on nothing but the run's seed, the problem and the number."""
        return f"{seed} {self.problem.problem_id} {self.number}"


@dataclass(frozen=True)
class Sample:
    """
    An answer, and its verdict.

    Args:
        benchmark, problem_id, number:
            Which sample of which problem.
        checksum (`str`):
            Of the prompt.
        text (`str`):
            The answer, without special tokens.
        num_tokens (`int`):
            Its length, end token included.
        truncated (`bool`):
            Whether it was cut off.
        entropy (`float`, *optional*):
            Mean entropy of the model at its tokens, nats; `None` where the backend does not tell.
        verdict (`str`):
            Kind of the verdict, see [`~stapo_trl.rewards.Verdict`].
        answer (`str`, *optional*):
            The extracted answer.
        judged (`bool`, defaults to `False`):
            Whether the language model accepted what the rules had rejected.
    """

    benchmark: str
    problem_id: str
    number: int
    checksum: str
    text: str
    num_tokens: int
    truncated: bool
    entropy: float | None = None
    verdict: str = ""
    answer: str | None = None
    judged: bool = False

    @property
    def key(self) -> tuple[str, str, int]:
        return self.benchmark, self.problem_id, self.number

    @property
    def correct(self) -> bool:
        return self.verdict == "correct"

    def to_json(self) -> str:
        return json.dumps(asdict(self))
