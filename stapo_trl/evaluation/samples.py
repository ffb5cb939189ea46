"""Problems, requests for samples of them, the samples, and their file."""

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
    """A problem of a benchmark: its prompt, as text or messages, and its gold answer."""

    benchmark: str
    problem_id: str
    prompt: str | list[dict[str, str]]
    solution: str

    @cached_property
    def checksum(self) -> str:
        """Checksum of the prompt, by which samples of another prompt are refused."""
        return hashlib.sha256(json.dumps(self.prompt).encode()).hexdigest()[:12]


@dataclass(frozen=True)
class Request:
    """A request for one sample of a problem, numbered from 0."""

    problem: Problem
    number: int

    @property
    def key(self) -> tuple[str, str, int]:
        return self.problem.benchmark, self.problem.problem_id, self.number

    def seed(self, seed: int) -> str:
        """Seed of this sample alone, so that it does not depend on its batch."""
        return f"{seed} {self.problem.problem_id} {self.number}"


@dataclass(frozen=True)
class Sample:
    """A completion and its verdict."""

    benchmark: str
    problem_id: str
    number: int
    checksum: str  # of the prompt
    text: str  # without special tokens, behind the opening tag of a thought that the prompt left open
    num_tokens: int  # with the end token
    truncated: bool
    entropy: float | None = None  # mean over the tokens, nats; None from vLLM
    verdict: str = ""  # a kind of stapo_trl.rewards.Verdict
    answer: str | None = None  # as extracted
    judged: bool = False  # correct by the judge, against the rules

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
    Samples as JSON lines below a first line of settings, which all samples share.

    It reads what a killed run left, and cuts off an unfinished last line; a file of other settings is refused.
    """

    def __init__(self, path: str | Path, settings: dict):
        self.path, self.settings = Path(path), settings
        self.samples: dict[tuple[str, str, int], Sample] = {}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        content = self.path.read_bytes() if self.path.exists() else b""
        complete = content[: content.rfind(b"\n") + 1]
        if complete:
            self._read(complete)
            if len(complete) < len(content):
                os.truncate(self.path, len(complete))
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
                f"{self.path} is not a file of samples ({error}): remove it, or choose another folder."
            ) from error
        found = {"chat_template_kwargs": {}} | found  # of a former version
        if found != {"chat_template_kwargs": {}} | self.settings:
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
        """Write the file anew."""
        lines = [json.dumps(self.settings), *(sample.to_json() for sample in self.samples.values())]
        write_atomically(self.path, "\n".join(lines) + "\n")
