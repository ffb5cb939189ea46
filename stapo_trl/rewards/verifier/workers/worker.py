"""The process that holds the symbolic workers: `python -m stapo_trl.rewards.verifier.workers.worker`, driven by pipes.

A plain command, neither forked from the trainer nor spawned by multiprocessing, inherits no CUDA context and needs no
importable `__main__`. It imports sympy once, and pebble forks its workers from it, so a killed one is replaced within
milliseconds. A job comes in as a line of JSON, `[number, *job]`, and `[number, "correct" | "incorrect" | "timeout" |
"error"]` goes out when it is done. Any module with `warm_up()` and `check(*job)` can be the task.
"""

import ctypes
import importlib
import json
import os
import resource
import signal
import sys
import threading
import time
from concurrent.futures import Future, TimeoutError

from pebble import ProcessPool


PR_SET_PDEATHSIG = 1


def _prepare(memory: int, parent: int) -> None:
    """Make a new worker ignore Ctrl-C, bound its memory and let it die with its parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, 1)
    os.dup2(devnull, 2)


def _end_all() -> None:
    os.killpg(os.getpgrp(), signal.SIGKILL)


def _watch(parent: int) -> None:
    """End everything when the trainer is gone, however it went."""
    while os.getppid() == parent:
        time.sleep(0.5)
    _end_all()


def main(workers: int, seconds: float, memory: int, task: str) -> None:
    """Serve jobs from stdin until it closes; `seconds` limit one job, `memory` one worker in bytes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_watch, args=(os.getppid(),), daemon=True).start()
    # A forked worker closes sys.stdin and would wait forever for the lock that the read below holds
    jobs, sys.stdin = os.fdopen(os.dup(0)), None
    # What a library prints must not end up between the verdicts
    replies = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    lock = threading.Lock()

    def reply(*values: object) -> None:
        with lock:
            replies.write(json.dumps(values) + "\n")

    def finish(future: Future, number: int) -> None:
        try:
            reply(number, "correct" if future.result() else "incorrect")
        except TimeoutError:
            reply(number, "timeout")
        except BaseException:  # also math-verify's own timeout and a dead worker: any failure is a verdict
            reply(number, "error")

    module = importlib.import_module(task)
    module.warm_up()
    pool = ProcessPool(max_workers=workers, max_tasks=2000, initializer=_prepare, initargs=(memory, os.getpid()))
    reply("ready", os.getpid())
    for line in jobs:
        number, *job = json.loads(line)
        future = pool.schedule(module.check, args=job, timeout=seconds)
        future.add_done_callback(lambda future, number=number: finish(future, number))
    _end_all()


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
