"""What is asked and what came back: a request for one sample of a problem, and the sample."""

import hashlib
import json
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from pathlib import Path

from ..observe.files import write_atomically


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


class SampleFile:
    """
    One JSON object a line: the settings first, then samples.

    Args:
        path (`str` or `Path`):
            The file. What a killed run left in it is read; a last line that it left unfinished is cut off.
        settings (`dict`):
            What the samples depend on.

    Raises:
        `ValueError`: if the file holds samples of other settings, or something else.
    """

    def __init__(self, path: str | Path, settings: dict):
        self.path, self.settings = Path(path), settings
        self.samples: dict[tuple[str, str, int], Sample] = {}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        content = self.path.read_bytes() if self.path.exists() else b""
        whole = content[: content.rfind(b"\n") + 1]
        if whole:
            self._read(whole)
            if len(whole) < len(content):
                os.truncate(self.path, len(whole))
        else:
            self.write()

    def _read(self, content: bytes) -> None:
        try:
            found, *entries = map(json.loads, content.splitlines())
            samples = [Sample(**entry) for entry in entries]
            for number, sample in enumerate(samples, 2):
                for field in fields(Sample):
                    if not isinstance(getattr(sample, field.name), field.type):
                        raise TypeError(f"line {number} has the {field.name} {getattr(sample, field.name)!r:.80}")
            if not isinstance(found, dict):
                raise TypeError(f"line 1 holds no settings but {found!r:.80}")
        except (ValueError, TypeError, RecursionError) as error:
            raise ValueError(
                f"{self.path} is no file of samples ({error}): remove it, or choose another folder."
            ) from error
        if found != self.settings:
            names = sorted(
                name for name in found.keys() | self.settings.keys() if found.get(name) != self.settings.get(name)
            )
            seen = "; ".join(f"{name}: {found.get(name)} there, {self.settings.get(name)} now" for name in names)
            raise ValueError(f"{self.path} holds samples of other settings ({seen}): choose another folder.")
        for sample in samples:
            self.samples.setdefault(sample.key, sample)

    def append(self, samples: Iterable[Sample]) -> None:
        """Add samples; they are on the disk when this returns."""
        samples = list(samples)
        with open(self.path, "a") as file:
            file.write("".join(sample.to_json() + "\n" for sample in samples))
            file.flush()
            os.fsync(file.fileno())
        self.samples |= {sample.key: sample for sample in samples}

    def write(self) -> None:
        """Write all samples anew, at once."""
        lines = [json.dumps(self.settings), *(sample.to_json() for sample in self.samples.values())]
        write_atomically(self.path, "\n".join(lines) + "\n")
