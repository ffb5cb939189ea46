r"""Verdicts per second and right verdicts of TRL's `accuracy_reward` and of ours, side by side.

    python tests/benchmarks/verifier.py [--completions math_cot_800.jsonl] [--hanging hang_cases.json] [--limit 20]

Three workloads: real completions (8 per problem; if the file is given), a hard mix (the pairs of the test suite,
generated GSM8K- and MATH-like answers), and a pathological batch, which runs in a process that is killed after `--limit`
seconds because TRL's does not return from it.
"""

import argparse
import json
import multiprocessing
import random
import time
from pathlib import Path

from stapo_trl.rewards.verifier import Verifier


ROOT = Path(__file__).parents[1]
PATHOLOGICAL = [r"\dfrac{5^{(5^{(5^{(5^5)})}-4)}-5}{16}", "9^{9^9}", r"\sum_{k=1}^{10^7} 1/k", "(10^9)!"]


def real(path: Path) -> list[tuple[str, str, bool | None]]:
    rows = [json.loads(line) for line in path.open(encoding="utf-8")]
    return [(row["completion"], row["gold"], row["rule_score"]) for row in rows]


def hard_mix() -> list[tuple[str, str, bool | None]]:
    rows = [json.loads(line) for line in (ROOT / "rewards/verifier_pairs.jsonl").open(encoding="utf-8")]
    pairs = [(row["response"], row["gold"], row["correct"]) for row in rows]
    draw = random.Random(0)
    for _ in range(400):
        whole, top, bottom = draw.randint(2, 99_999), draw.randint(1, 50), draw.randint(51, 99)
        right = draw.random() < 0.5
        shown = whole if right else whole + 1
        pairs.append(
            (f"She pays {whole} - 1 + 1 dollars. The total is \\boxed{{{shown:,}}}.", f"... #### {whole}", right)
        )
        shown = f"{top}x/{bottom}" if right else f"{top}x/{bottom - 1}"
        pairs.append((rf"Expanding gives \boxed{{{shown}}}.", rf"$\frac{{{top}}}{{{bottom}}}x$", right))
    return pairs


def pathological() -> list[tuple[str, str, bool | None]]:
    return [(rf"\boxed{{{text}}}", "$5$", False) for text in PATHOLOGICAL] + [(r"\boxed{5}", "$5$", True)]


def trl_rewards(pairs: list) -> list[bool]:
    from trl.rewards import accuracy_reward

    completions = [[{"content": response}] for response, _, _ in pairs]
    return [reward == 1.0 for reward in accuracy_reward(completions, [gold for _, gold, _ in pairs])]


def timed(function, pairs: list) -> tuple[float, int]:
    begin = time.perf_counter()
    verdicts = function(pairs)
    seconds = time.perf_counter() - begin
    return seconds, sum(verdict == right for verdict, (_, _, right) in zip(verdicts, pairs, strict=True))


def row(name: str, count: int, theirs: tuple[float, int] | None, ours: tuple[float, int], limit: float) -> str:
    left = f"{count / theirs[0]:9.0f}/s {theirs[1]:5d} right" if theirs else f"  not back after {limit:.0f} s  "
    ratio = f"{theirs[0] / ours[0]:7.1f}x" if theirs else f" >{limit / ours[0]:5.0f}x"
    return f"{name:34s} {count:5d}  {left}  {count / ours[0]:9.0f}/s {ours[1]:5d} right  {ratio}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--completions", type=Path, default=ROOT.parents[1] / "shared/data/completions/math_cot_800.jsonl"
    )
    parser.add_argument(
        "--limit", type=float, default=20.0, help="seconds that TRL's reward gets for the pathological batch"
    )
    arguments = parser.parse_args()
    verifier = Verifier()

    def ours(pairs: list) -> list[bool]:
        return [v.correct for v in verifier.grade([r for r, _, _ in pairs], [g for _, g, _ in pairs])]

    def uncached(pairs: list) -> list[bool]:
        # a cache of one verdict per call: every pair is worked out anew
        verdicts = []
        for pair in pairs:
            verifier.forget()
            verdicts += ours([pair])
        return verdicts

    trl_rewards(pathological()[-1:])  # imports
    print(f"{'workload':34s} {'rows':>5s}  {'TRL accuracy_reward':22s}  {'stapo_trl':22s}  faster")
    workloads = {"hard mix": hard_mix()}
    if arguments.completions.is_file():
        workloads = {"real completions, 8 per problem": real(arguments.completions)} | workloads
    for name, pairs in workloads.items():
        theirs = timed(trl_rewards, pairs)
        verifier.forget()
        print(row(name, len(pairs), theirs, timed(ours, pairs), 0))
        print(row(f"{name}, no cache", len(pairs), theirs, timed(uncached, pairs), 0))
    pairs = pathological()
    child = multiprocessing.get_context("spawn").Process(target=trl_rewards, args=(pairs,))
    child.start()
    child.join(arguments.limit)
    returned = child.exitcode is not None
    child.kill()
    result = timed(ours, pairs)
    print(row("pathological", len(pairs), (arguments.limit, 0) if returned else None, result, arguments.limit))


if __name__ == "__main__":
    main()
