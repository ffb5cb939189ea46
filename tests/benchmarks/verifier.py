r"""Verdicts per second and right verdicts of TRL's `accuracy_reward` and of ours, side by side.

    python tests/benchmarks/verifier.py [--completions math_cot_800.jsonl] [--limit 20]

Four workloads: real completions (8 per problem, if the file exists), generated GSM8K- and MATH-like answers, the hard
pairs of the test suite, and a pathological batch, from which TRL's does not return: it runs in a process that is killed
after `--limit` seconds.
"""

import argparse
import json
import multiprocessing
import random
import time
from pathlib import Path

from stapo_trl.rewards.verifier.verdict import Verifier


ROOT = Path(__file__).parents[2]
PATHOLOGICAL = [r"\dfrac{5^{(5^{(5^{(5^5)})}-4)}-5}{16}", "9^{9^9}", r"\sum_{k=1}^{10^7} 1/k", "(10^9)!"]


def real(path: Path) -> list[tuple[str, str, bool | None]]:
    rows = [json.loads(line) for line in path.open(encoding="utf-8")]
    return [(row["completion"], row["gold"], row["rule_score"]) for row in rows]


def suite() -> list[tuple[str, str, bool | None]]:
    rows = [json.loads(line) for line in (ROOT / "tests/rewards/verifier/verifier_pairs.jsonl").open(encoding="utf-8")]
    return [(row["response"], row["gold"], row["correct"]) for row in rows]


def generated() -> list[tuple[str, str, bool | None]]:
    """GSM8K- and MATH-like answers in notations other than their golds', half of them wrong."""
    draw = random.Random(0)
    pairs = []
    for _ in range(250):
        n, a, b = draw.randint(1000, 99_999), draw.randint(2, 50), draw.randint(51, 99)
        right = draw.random() < 0.5
        m, c = (n, a) if right else (n + 1, a + 1)
        pairs += [
            (rf"She pays \boxed{{\${m:,}}}.", f"She pays ... #### {n}", right),
            (rf"So \boxed{{{m / 1000}\times 10^{{3}}}}.", f"${n}$", right),
            (rf"So \boxed{{\dfrac{{{c}}}{{{b}}}}}.", f"${a}/{b}$", right),
            (rf"So \boxed{{{c}\%}}.", rf"${a}\%$", right),
            (rf"So \boxed{{{b}\sqrt{{{c}}}}}.", rf"${b} \sqrt{{{a}}}$", right),
            (rf"So \boxed{{(x+{c})(x-{b})}}.", rf"$x^2+{a - b}x-{a * b}$".replace("+-", "-"), right),
            (rf"So \boxed{{({c}, {b}]}}.", rf"$\left({a},{b}\right]$", right),
            (rf"So \boxed{{{b}, {c}}}.", f"${a},{b}$", right),
        ]
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
    return f"{name:42s} {count:5d}  {left}  {count / ours[0]:9.0f}/s {ours[1]:5d} right  {ratio}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--completions", type=Path, default=ROOT.parent / "shared/data/completions/math_cot_800.jsonl")
    parser.add_argument(
        "--limit", type=float, default=20.0, help="seconds that TRL's reward gets for the pathological batch"
    )
    arguments = parser.parse_args()
    verifier = Verifier()

    def ours(pairs: list) -> list[bool]:
        return [v.correct for v in verifier.grade([r for r, _, _ in pairs], [g for _, g, _ in pairs])]

    def uncached(pairs: list) -> list[bool]:
        # every pair is worked out anew
        verdicts = []
        for pair in pairs:
            verifier.forget()
            verdicts += ours([pair])
        return verdicts

    trl_rewards(pathological()[-1:])  # imports
    print(f"{'workload':42s} {'rows':>5s}  {'TRL accuracy_reward':22s}  {'stapo_trl':22s}  faster")
    workloads = {"generated, 8 kinds": generated(), "pairs of the test suite": suite()}
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
