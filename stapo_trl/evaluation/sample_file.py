"""The file that samples are appended to as they finish: a killed run loses none that it holds, and repeats none."""

import json
import os
from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path

from ..whole_file import write_whole
from .sample import Sample


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
        write_whole(self.path, "\n".join(lines) + "\n")
