"""The trainer's end of the symbolic workers: jobs out, verdicts in, on time or not at all."""

import atexit
import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
import weakref
from pathlib import Path


# Importing sympy takes a second or two, more on a busy file system
START_SECONDS = 120.0
_pools: "weakref.WeakSet[WorkerPool]" = weakref.WeakSet()


def default_workers() -> int:
    """Workers of this process: the host's cores shared among its ranks, between 1 and 4."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    ranks = int(os.environ.get("LOCAL_WORLD_SIZE") or 1)
    return max(1, min(4, cores // max(1, ranks)))


class WorkerPool:
    """Worker processes that can be killed, started on first use and again whenever they are gone.

    Safe to call from any thread (calls take turns), under asyncio and after `os.fork` (the child starts its own). Sets no
    signal handler and no alarm.

    Args:
        workers (`int`, *optional*): Number of worker processes; [`default_workers`] by default.
        item_seconds (`float`, *optional*, defaults to `5.0`): Wall-clock limit of one job, after which its worker is killed.
        memory_gb (`float`, *optional*, defaults to `2.0`): Address space of one worker in GiB.
        task (`str`, *optional*): Module whose `check(*job)` the workers run; symbolic comparison by default.
    """

    def __init__(
        self,
        workers: int | None = None,
        item_seconds: float = 5.0,
        memory_gb: float = 2.0,
        task: str = "stapo_trl.rewards.verifier.symbolic",
    ):
        self.workers = workers or default_workers()
        self.item_seconds = item_seconds
        self.memory_gb = memory_gb
        self.task = task
        self._forget()
        _pools.add(self)

    def _forget(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen | None = None
        self._replies: queue.SimpleQueue = queue.SimpleQueue()

    def __getstate__(self) -> dict:
        return {name: getattr(self, name) for name in ("workers", "item_seconds", "memory_gb", "task")}

    def __setstate__(self, state: dict) -> None:
        self.__init__(**state)

    def run(self, jobs: list[tuple], seconds: float) -> list[str | None]:
        """One verdict per job (the arguments of the task's `check`), within a wall-clock budget for all of them.

        A verdict is "correct", "incorrect", "timeout" or "error", or `None` for a job that the budget ended. Raises
        `RuntimeError` if the workers cannot be started.
        """
        verdicts: list[str | None] = [None] * len(jobs)
        with self._lock:
            try:
                deadline = time.monotonic() + seconds
                # Workers that something else killed are started once more, for what is left
                for _ in range(2):
                    if None not in verdicts:
                        break
                    started = self._start()
                    deadline += started
                    if self._collect(jobs, verdicts, deadline):
                        break
                else:
                    verdicts = [verdict or "error" for verdict in verdicts]
            except BaseException:
                self._stop()  # Ctrl-C in the middle: late verdicts must not be taken for those of the next batch
                raise
            if None in verdicts:
                self._stop()
        return verdicts

    def _collect(self, jobs: list, verdicts: list, deadline: float) -> bool:
        """Send what is open and fill in what comes back; `False` if the workers died."""
        lines = [json.dumps([number, *jobs[number]]) for number, verdict in enumerate(verdicts) if verdict is None]
        try:
            self._process.stdin.write(("\n".join(lines) + "\n").encode())
            self._process.stdin.flush()
        except OSError:
            self._stop()
            return False
        while None in verdicts:
            try:
                reply = self._replies.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                return True
            if reply is None:
                self._stop()
                return False
            verdicts[reply[0]] = reply[1]
        return True

    def _start(self) -> float:
        """Start the worker process if none runs; returns the seconds it took."""
        if self._process and self._process.poll() is None:
            return 0.0
        self._stop()
        begin = time.monotonic()
        # This package and what is installed, but not the folder of the user's script, which may hold a random.py
        installed = [entry for entry in sys.path if entry.rstrip("/").endswith(("site-packages", "dist-packages"))]
        path = os.pathsep.join(
            filter(None, [str(Path(__file__).parents[4]), os.environ.get("PYTHONPATH"), *installed])
        )
        memory = int(self.memory_gb * 2**30)
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "stapo_trl.rewards.verifier.workers.worker"]
            + [str(self.workers), str(self.item_seconds), str(memory), self.task],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": path, "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"},
            start_new_session=True,
        )
        self._replies = queue.SimpleQueue()
        threading.Thread(target=_read, args=(self._process.stdout, self._replies), daemon=True).start()
        try:
            ready = self._replies.get(timeout=START_SECONDS)
        except queue.Empty:
            ready = None
        if ready is None:
            self._stop()
            raise RuntimeError(
                "The maths verifier's worker process did not start; see its own message above. Check that "
                f"`python -m stapo_trl.rewards.verifier.workers.worker 1 5 2147483648 {self.task}` runs (math-verify, sympy and antlr "
                "installed)."
            )
        return time.monotonic() - begin

    def _stop(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        try:
            os.killpg(process.pid, signal.SIGKILL)  # its own session: the process and all its workers
        except ProcessLookupError:
            pass
        process.wait()
        with contextlib.suppress(OSError):  # what was not written yet has no reader
            process.stdin.close()

    def close(self) -> None:
        """End the workers; the next call starts new ones."""
        with self._lock:
            self._stop()

    def __del__(self):
        self._stop()


def _read(stream, replies: queue.SimpleQueue) -> None:
    with stream:
        for line in stream:
            replies.put(json.loads(line))
    replies.put(None)


def _close_all() -> None:
    for pool in list(_pools):
        pool._stop()


def _after_fork() -> None:
    """Let go of the parent's pipes in the child of a fork, which will start its own workers."""
    for pool in list(_pools):
        process = pool._process
        if process is not None:
            process.returncode = 0
            os.close(process.stdin.fileno())
            _abandoned.append(process)
        pool._forget()


_abandoned: list[subprocess.Popen] = []  # never collected, so that no finaliser touches the parent's processes
atexit.register(_close_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
