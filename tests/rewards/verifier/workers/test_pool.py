"""The worker processes: bounded, replaceable, invisible to the caller, gone with it."""

import asyncio
import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

from stapo_trl.rewards.verifier.verdict import Verifier
from stapo_trl.rewards.verifier.workers.pool import WorkerPool, default_workers


# Keeps sympy busy for longer than any limit here, and is not refused early
SLEEPER = (
    "\\det\\begin{pmatrix}"
    + "\\\\".join("&".join(f"x_{{{i}{j}}}" for j in range(9)) for i in range(9))
    + "\\end{pmatrix}"
)
HANGING = [
    r"\dfrac{5^{(5^{(5^{(5^5)})}-4)}-5}{16}", "9^{9^9}", "10^{10^{10}}", "10^{-10^{10}}", "(10^7)!", "((10!)!)!",
    r"\binom{10^9}{5\cdot10^8}", "(10^9)!", r"\sum_{k=1}^{10^7} 1/k", r"\prod_{k=1}^{10^6} k", r"7^{10^9} \mod 100",
    "(x+y+z+w)^{400}", r"\int_0^1 \sin(x^x)/(1+x^\pi) dx", "(" * 30 + "5" + ")" * 30, "{" * 3000 + "5" + "}" * 3000,
    "+".join("1" * 1500), r"\prod_{k=1}^{99999} k^k", r"x^{9^{9^9}}", r"\pi^{10^{10^{10}}}", SLEEPER,
]  # fmt: skip


def identity(n: int) -> tuple[str, str]:
    """A right answer that takes a worker to see, another one for every n."""
    return rf"\boxed{{2\sin({n}t)\cos({n}t)}}", rf"\sin({2 * n}t)"


EASY = identity(1)
HARD = (rf"\boxed{{{SLEEPER}}}", "y+1")


def children(pid: int) -> list[int]:
    """Living descendants of a process."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                fields = open(f"/proc/{entry}/stat").read().rsplit(")", 1)[1].split()
            except OSError:
                continue
            if int(fields[1]) == pid and fields[0] != "Z":
                found += [int(entry), *children(int(entry))]
    return found


def alive(pid: int) -> bool:
    try:
        return open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def wait_until(condition, seconds: float = 10.0) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.05)
    return False


def run_script(code: str, *command: str, **options) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, *command], input=textwrap.dedent(code), text=True, capture_output=True, timeout=60, **options
    )


@pytest.fixture
def quick():
    verifier = Verifier(item_seconds=1.0, batch_seconds=20.0, workers=2)
    yield verifier
    verifier.pool.close()


def test_pathological_batch_returns_within_its_budget():
    verifier = Verifier(item_seconds=2.0, batch_seconds=20.0)
    begin = time.monotonic()
    verdicts = verifier.grade([rf"\boxed{{{text}}}" for text in HANGING] + [EASY[0]], ["5"] * len(HANGING) + [EASY[1]])
    assert time.monotonic() - begin < 21
    assert verdicts[-1].kind == "correct"
    assert [v.correct for v in verdicts[:-1]] == ["(5)" in text for text in HANGING]
    verifier.pool.close()


def test_item_limit_ends_one_item_and_no_other(quick):
    begin = time.monotonic()
    verdicts = quick.grade([HARD[0], EASY[0], HARD[0]], [HARD[1], EASY[1], HARD[1]])
    assert [v.kind for v in verdicts] == ["timeout", "correct", "timeout"]
    assert time.monotonic() - begin < 5


def test_batch_budget_ends_everything_and_the_next_batch_works():
    verifier = Verifier(item_seconds=30.0, batch_seconds=1.5, workers=1)
    begin = time.monotonic()
    verdicts = verifier.grade([HARD[0], EASY[0]], [HARD[1], EASY[1]])
    assert [v.kind for v in verdicts] == ["timeout", "timeout"]
    assert time.monotonic() - begin < 3
    assert verifier.grade([EASY[0]], [EASY[1]])[0].correct
    verifier.pool.close()


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("victim", ["worker", "its parent"])
def test_kill_9_in_the_middle_of_a_batch_loses_no_other_verdict(victim):
    verifier = Verifier(item_seconds=1.5, batch_seconds=30.0, workers=2)
    count = 20
    responses, golds = zip(*[identity(n) for n in range(1, count)], HARD, strict=True)
    results = []
    thread = threading.Thread(target=lambda: results.extend(verifier.grade(responses, golds)))
    server = verifier.pool._process.pid
    assert wait_until(lambda: len(children(server)) == 2)
    thread.start()
    time.sleep(0.3)
    os.kill(children(server)[0] if victim == "worker" else server, signal.SIGKILL)
    thread.join(timeout=30)
    kinds = [verdict.kind for verdict in results]
    assert len(kinds) == count and kinds.count("correct") >= count - 2
    assert set(kinds) <= {"correct", "timeout", "error"}
    assert verifier.grade(*zip(identity(99), strict=True))[0].correct
    verifier.pool.close()


def test_memory_is_capped():
    pool = WorkerPool(workers=1, memory_gb=0.25)
    assert pool.run([("9^{99999999}+x", "y", 0.0), ("t+t", "2t", 0.0)], 20.0) == ["error", "correct"]
    limits = Path(f"/proc/{children(pool._process.pid)[0]}/limits").read_text()
    assert re.search(rf"Max address space +{2**28} +{2**28} ", limits)
    pool.close()


def test_works_from_a_thread_and_leaves_alarms_alone(verifier):
    fired, results = [], []
    previous = signal.signal(signal.SIGALRM, lambda *_: fired.append(True))
    try:
        signal.alarm(1)
        handler = signal.getsignal(signal.SIGINT)
        verifier.grade(*zip(identity(101), strict=True))
        assert signal.getsignal(signal.SIGINT) is handler
        worker = threading.Thread(target=lambda: results.extend(verifier.grade(*zip(identity(102), strict=True))))
        worker.start()
        worker.join()
        assert wait_until(lambda: fired, 3)
    finally:
        signal.signal(signal.SIGALRM, previous)
    assert results[0].correct


def test_works_under_asyncio_and_from_many_threads(verifier):
    async def grade(n: int):
        return await asyncio.to_thread(verifier.grade, *zip(identity(n), strict=True))

    async def main():
        direct = verifier.grade(*zip(identity(103), strict=True))
        return [*await asyncio.gather(*map(grade, range(200, 208))), direct]

    assert all(verdicts[0].correct for verdicts in asyncio.run(main()))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
def test_works_on_both_sides_of_a_fork(verifier):
    child = os.fork()
    if child == 0:
        try:
            os._exit(0 if verifier.grade(*zip(identity(104), strict=True))[0].correct else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert verifier.grade(*zip(identity(105), strict=True))[0].correct


SCRIPT = r"""
from stapo_trl.rewards import grade
print("start")
print([v.kind for v in grade(["\\boxed{2\\sin w\\cos w}", "\\boxed{\\sin w}"], ["\\sin(2w)", "\\cos w"])])
"""


def test_needs_no_importable_main(tmp_path):
    script = tmp_path / "train.py"  # without a main guard
    script.write_text(SCRIPT)
    (tmp_path / "random.py").write_text("raise RuntimeError('a file of the user, not ours to import')")
    for command in (["-"], [str(script)], ["-c", SCRIPT]):
        result = run_script(SCRIPT, "-P", *command, cwd=tmp_path)
        assert result.stdout == "start\n['correct', 'incorrect']\n", (command, result.stderr)


def test_importing_rewards_or_workers_imports_neither_torch_nor_trl():
    code = (
        "import sys, stapo_trl.rewards.verifier.workers.worker, stapo_trl.rewards.math_accuracy\n"
        "print([name for name in ('torch', 'trl', 'transformers') if name in sys.modules])"
    )
    assert run_script(code, "-").stdout == "[]\n"


PARENT = r"""
import os, sys, threading, time
from stapo_trl.rewards.verifier.verdict import Verifier
verifier = Verifier(item_seconds=60, batch_seconds=120)
threading.Thread(target=verifier.grade, args=([r"{response}"], ["y+1"]), daemon=True).start()
time.sleep(0.5)
print("ready", flush=True)
time.sleep(60)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL, signal.SIGINT], ids=lambda s: s.name)
def test_no_orphan_outlives_the_trainer(how):
    code = PARENT.replace("{response}", HARD[0])
    parent = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert parent.stdout.readline() == "ready\n"
    family = children(parent.pid)
    assert len(family) >= 2
    parent.send_signal(how)
    parent.wait(timeout=10)
    assert wait_until(lambda: not any(map(alive, family)), 5)
    parent.stdout.close()


def test_normal_exit_leaves_nothing_behind(tmp_path):
    code = (
        SCRIPT
        + "\nimport os\nfrom stapo_trl.rewards.verifier.verdict import default_verifier\nprint(default_verifier().pool._process.pid)"
    )
    result = run_script(code, "-")
    assert not alive(int(result.stdout.split()[-1]))


def test_ctrl_c_in_the_middle_of_a_batch_does_not_spoil_the_next():
    verifier = Verifier(item_seconds=30.0, batch_seconds=60.0, workers=1)
    timer = threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        verifier.grade([HARD[0]], [HARD[1]])
    assert [v.kind for v in verifier.grade([r"\boxed{\sin w}", EASY[0]], [r"\cos w", EASY[1]])] == [
        "incorrect",
        "correct",
    ]
    verifier.pool.close()


def test_workers_share_the_cores_of_the_host_among_its_ranks(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(32)), raising=False)
    for ranks, workers in (("1", 4), ("8", 4), ("16", 2), ("64", 1)):
        monkeypatch.setenv("LOCAL_WORLD_SIZE", ranks)
        assert default_workers() == workers


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_workers_start_late_and_stay_few():
    pool = WorkerPool(workers=2)
    assert pool._process is None
    pool.run([(f"\\sin({n}t)", "t", 0.0) for n in range(20)], 20.0)
    assert len(children(pool._process.pid)) == 2
    pool.close()
    assert pool._process is None


RANK = r"""
import os, sys, time
import torch.distributed as dist
from stapo_trl.rewards import MathAccuracyReward
dist.init_process_group("gloo")
reward = MathAccuracyReward(item_seconds=2, batch_seconds=10, workers=1)
hard = r"{response}" if dist.get_rank() == 0 else r"\boxed{y+1}"
begin = time.monotonic()
rewards = reward([hard, r"\boxed{1+y}"], solution=["y+1", "y+1"])
gathered = [None, None]
dist.all_gather_object(gathered, rewards)
if dist.get_rank() == 0:
    print(gathered, time.monotonic() - begin < 12)
"""


@pytest.mark.slow
def test_two_ranks_meet_again_when_one_has_a_sleeping_item(tmp_path):
    script = tmp_path / "rank.py"
    script.write_text(RANK.replace("{response}", HARD[0]))
    result = run_script("", "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", str(script))
    assert "[[-1.0, 1.0], [1.0, 1.0]] True" in result.stdout, result.stderr
