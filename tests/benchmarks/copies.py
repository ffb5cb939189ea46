"""
Time and memory of loading a file as large as DAPO-Math-17k (1,791,700 rows, a hundred copies of each problem), next to
keeping every text in a Python dictionary: `python tests/benchmarks/copies.py [COPIES]`.
"""

import random
import sys
import tempfile
import threading
import time
from pathlib import Path

import datasets
import pyarrow as pa
import pyarrow.parquet as pq

from stapo_trl.data import load_dapo
from stapo_trl.data.prompt import PREFIXES, SUFFIXES
from stapo_trl.data.reading.source import open_rows
from stapo_trl.rewards import grade


PROBLEMS = 17_917
WORDS = (
    "find the number of positive integers such that triangle polynomial where let be a prime sum $x^2$ given".split()
)


def write_file(path: Path, copies: int) -> None:
    """Rows in DAPO's shape; the last 512 problems repeat the first with other white space, 7 of them with another gold."""
    rng = random.Random(0)
    texts = [f"{n}: {' '.join(rng.choices(WORDS, k=rng.randint(20, 100)))}" for n in range(PROBLEMS)]
    golds = [str(rng.randint(-99, 9999)) for _ in texts]
    for n in range(512):
        texts[PROBLEMS - 512 + n] = texts[n].replace(" ", "  ", 1)
        golds[PROBLEMS - 512 + n] = "31337" if n < 7 else golds[n]
    rows = [
        {
            "data_source": "math_dapo",
            "prompt": [{"content": f"{PREFIXES[0]}\n\n{text}\n\n{SUFFIXES[0]}", "role": "user"}],
            "ability": "MATH",
            "reward_model": {"ground_truth": gold, "style": "rule-lighteval/MATH_v2"},
            "extra_info": {"index": f"{number:036d}"},
        }
        for number, (text, gold) in enumerate(zip(texts, golds, strict=True))
    ]
    table = pa.Table.from_pylist(rows)
    with pq.ParquetWriter(path, table.schema) as writer:
        for _ in range(copies):
            writer.write_table(table)


class Peak:
    """Seconds, and the largest anonymous memory (not the pages of mapped files) above that of the start, in MiB."""

    def __enter__(self):
        self.start, self.begin, self.most, self.running = anonymous(), time.perf_counter(), 0.0, True
        self.thread = threading.Thread(target=self._watch)
        self.thread.start()
        return self

    def _watch(self):
        while self.running:
            self.most = max(self.most, anonymous())
            time.sleep(0.01)

    def __exit__(self, *error):
        self.running = False
        self.thread.join()
        self.seconds, self.mib = time.perf_counter() - self.begin, self.most - self.start


def anonymous() -> float:
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("RssAnon")]
    return int(line.split()[1]) / 1024


def main(copies: int) -> None:
    datasets.disable_progress_bars()
    with tempfile.TemporaryDirectory() as folder:
        datasets.config.HF_DATASETS_CACHE = Path(folder)
        file = Path(folder) / "dapo.parquet"
        write_file(file, copies)
        with Peak() as reading:
            rows = open_rows("", file)
        grade([r"\boxed{1}"], ["1"])  # starts the verifier
        with Peak() as ours:
            problems = load_dapo(file)
        with Peak() as grading:
            grade([f"\\boxed{{{gold}}}" for gold in problems["solution"]], problems["solution"])
        with Peak() as plain:
            seen = {}
            for number, row in enumerate(rows):
                seen.setdefault((row["prompt"][0]["content"], row["reward_model"]["ground_truth"]), []).append(number)
        print(problems.info.description)
        print(f"parquet to Arrow: {reading.seconds:.1f} s; grading {len(problems):,} golds: {grading.seconds:.2f} s")
        print(f"a dictionary of texts:  {plain.seconds:6.1f} s  {plain.mib:6.0f} MiB  {len(seen):,} texts")
        print(
            f"load_dapo:              {ours.seconds:6.1f} s  {ours.mib:6.0f} MiB  {len(problems):,} problems, graded"
        )
        print(f"ratio: {plain.seconds / ours.seconds:.1f} times faster")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100)
