"""The result of an evaluation: metrics, what is needed to repeat it, and its table in three formats."""

import csv
import io
import json
import subprocess
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np
from rich.markup import escape
from rich.table import Table

from .. import __version__
from ..observe.files import write_atomically
from ..observe.text import show_text
from ..rewards.verifier.comparison import canonical
from .benchmark import Benchmark
from .metrics import avg_at_n, interval, maj_at_k, pass_at_k
from .samples import Sample


# Scores depend on the versions of the graders as well as on those of the model's code
PACKAGES = ("torch", "transformers", "vllm", "peft", "datasets", "math-verify", "latex2sympy2_extended", "sympy")
SHARES = ("truncated", "no_answer", "extracted", "failed", "judged")


def measure(benchmark: Benchmark, samples: Sequence[Sample]) -> dict:
    """Metrics of the graded samples of one benchmark: see the result of [`evaluate`]."""
    by_problem = {problem.problem_id: [] for problem in benchmark.problems}
    for sample in sorted(samples, key=lambda sample: sample.number):
        by_problem[sample.problem_id].append(sample)
    groups = list(by_problem.values())
    n, c = [len(group) for group in groups], [sum(sample.correct for sample in group) for group in groups]
    shares = avg_at_n(n, c)
    # Answers that are equal after the verifier's normalisation of notation are one vote
    votes = [[None if sample.answer is None else canonical(sample.answer) for sample in group] for group in groups]
    correct = [[sample.correct for sample in group] for group in groups]
    ks = sorted({2**power for power in range(min(n).bit_length())} | {min(n)})
    every = [sample for group in groups for sample in group]
    tokens = sum(sample.num_tokens for sample in every)
    entropy = None
    if all(sample.entropy is not None for sample in every):
        entropy = sum(sample.entropy * sample.num_tokens for sample in every) / max(tokens, 1)
    return {
        "problems": len(groups),
        "rows": benchmark.rows,
        "dropped": benchmark.dropped,
        "n": [min(n), max(n)],
        "accuracy": float(shares.mean()),
        "interval": interval([shares]),
        "pass@k": {str(k): _with_interval([pass_at_k(n, c, k)]) for k in ks},
        "maj@k": {str(k): _with_interval([maj_at_k(votes, correct, k)]) for k in ks},
        "truncated": float(np.mean([sample.truncated for sample in every])),
        "no_answer": float(np.mean([sample.verdict == "no_answer" for sample in every])),
        "extracted": float(np.mean([sample.answer is not None for sample in every])),
        "failed": float(np.mean([sample.verdict in ("timeout", "error") for sample in every])),
        "judged": float(np.mean([sample.judged for sample in every])),
        "unparseable_golds": sum(group[0].verdict == "unparseable_gold" for group in groups),
        "length": tokens / len(every),
        "entropy": entropy,
        "per_problem": {name: [right, number] for name, right, number in zip(by_problem, c, n, strict=True)},
        "dataset": {"revision": benchmark.revision, "checksum": benchmark.checksum},
    }


def _with_interval(values: Sequence[Sequence[float]]) -> list[float]:
    return [float(np.mean([np.mean(numbers) for numbers in values])), *interval(values)]


def overall(measured: dict[str, dict]) -> dict:
    """Mean over benchmarks, as in the paper's tables."""
    shares = [[right / number for right, number in entry["per_problem"].values()] for entry in measured.values()]
    accuracy, *ends = _with_interval(shares)
    means = {name: float(np.mean([entry[name] for entry in measured.values()])) for name in (*SHARES, "length")}
    entropies = [entry["entropy"] for entry in measured.values()]
    return {
        "accuracy": accuracy,
        "interval": ends,
        **means,
        "unparseable_golds": sum(entry["unparseable_golds"] for entry in measured.values()),
        "entropy": None if None in entropies else float(np.mean(entropies)),
    }


def find_warnings(measured: dict[str, dict]) -> list[str]:
    """Why a number may not mean what it seems to."""
    found = []
    for name, entry in measured.items():
        if entry["extracted"] == 1 and entry["accuracy"] == 0:
            found.append(
                f"{name}: an answer was found in every sample and none is right. Compare answers and golds in the "
                "file of samples: the golds may have another form, or be those of other problems."
            )
        if entry["unparseable_golds"]:
            found.append(
                f"{name}: {entry['unparseable_golds']} golds cannot be graded; their problems count as wrong."
            )
        if entry["dropped"]:
            found.append(f"{name}: {entry['dropped']} of {entry['rows']} rows cannot be used and were dropped.")
        if entry["truncated"] > 0.5:
            found.append(f"{name}: more than half of the samples were cut off: raise max_new_tokens.")
        if entry["failed"]:
            found.append(
                f"{name}: the verifier gave up on {100 * entry['failed']:.1f} % of samples; they count as wrong."
            )
    return found


def versions() -> dict[str, str]:
    """Versions of this package and of the installed ones that a score depends on."""
    found = {"stapo-trl": __version__}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def commit() -> str | None:
    """Commit of this package's source, with a plus sign if it has changes; `None` for an installed package."""

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(Path(__file__).parent), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    try:
        if not git("ls-files", Path(__file__).name):
            return None  # some other project's repository
        return git("rev-parse", "HEAD") + ("+" if git("status", "--porcelain", "-uno") else "")
    except (OSError, subprocess.CalledProcessError):
        return None


def rows_of(result: dict) -> list[dict[str, str]]:
    """Rows of a result's table: one for each benchmark, and one for all if there are several."""
    rows = []
    for name, entry in [*result["benchmarks"].items(), ("overall", result["overall"])]:
        n = entry.get("n")
        rows.append(
            {
                "benchmark": name,
                "problems": str(entry.get("problems", "")),
                "n": "" if n is None else "-".join(map(str, sorted(set(n)))),
                "avg@n": f"{100 * entry['accuracy']:.2f}",
                "95 %": "{:.1f} to {:.1f}".format(*(100 * end for end in entry["interval"])),
                "pass@n": f"{100 * entry['pass@k'][str(n[0])][0]:.2f}" if n else "",
                "maj@n": f"{100 * entry['maj@k'][str(n[0])][0]:.2f}" if n else "",
                "extracted %": f"{100 * entry['extracted']:.1f}",
                "no answer %": f"{100 * entry['no_answer']:.1f}",
                "truncated %": f"{100 * entry['truncated']:.1f}",
                "bad golds": str(entry["unparseable_golds"]),
                "tokens": f"{entry['length']:.0f}",
                "entropy": "" if entry["entropy"] is None else f"{entry['entropy']:.3f}",
            }
        )
    return rows if len(result["benchmarks"]) > 1 else rows[:1]


# Two tables, as a terminal of 80 columns has no room for one
ACCURACY = ("benchmark", "problems", "n", "avg@n", "95 %", "pass@n", "maj@n")
ANSWERS = ("benchmark", "extracted %", "no answer %", "truncated %", "bad golds", "tokens", "entropy")


def tables(result: dict) -> list[Table]:
    """The table of a result for a terminal."""
    shown = []
    for columns in (ACCURACY, ANSWERS):
        table = Table()
        for column in columns:
            header = column if columns == ACCURACY else "\n".join(column.rsplit(" ", 1))
            table.add_column(header, justify="left" if column == "benchmark" else "right")
        for row in rows_of(result):
            bold = "bold" if row["benchmark"] == "overall" else None
            table.add_row(*(escape(show_text(row[column])) for column in columns), style=bold)
        shown.append(table)
    return shown


def to_markdown(result: dict) -> str:
    """The table of a result, its warnings and its settings."""

    def line(cells) -> str:
        return "| " + " | ".join(str(cell).replace("|", r"\|").replace("\n", " ") for cell in cells) + " |"

    rows = rows_of(result)
    settings = {name: value for name, value in result.items() if name not in ("benchmarks", "overall", "warnings")}
    settings |= {f"dataset {name}": entry["dataset"] for name, entry in result["benchmarks"].items()}
    return "\n".join(
        [
            line(rows[0]),
            line("---" for _ in rows[0]),
            *(line(row.values()) for row in rows),
            "",
            *(f"- {warning}" for warning in result["warnings"]),
            "",
            line(("setting", "")),
            line(("---", "---")),
            *(
                line((name, value if isinstance(value, str) else json.dumps(value)))
                for name, value in settings.items()
            ),
            "",
        ]
    )


def to_csv(result: dict) -> str:
    rows = rows_of(result)
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def save(result: dict, path: Path) -> None:
    """Write a result as JSON, Markdown and CSV: the path, which has no suffix, and theirs."""
    text = json.dumps(result, indent=1, allow_nan=False) + "\n"
    for suffix, content in {".json": text, ".md": to_markdown(result), ".csv": to_csv(result)}.items():
        write_atomically(path.with_name(path.name + suffix), content)
