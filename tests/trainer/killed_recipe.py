"""
Run by `test_resume.py`: the embedded recipe, killed at random moments and resumed until it ends, against one left alone.

Every run is a fork of this process, which spares the imports. Half of them are killed soon after a checkpoint, so that
generation and the update are hit, the others in the middle of writing one of the files of a checkpoint.
"""

import itertools
import os
import random
import signal
import sys
import time
from pathlib import Path


sys.path.insert(0, str(Path(__file__).parents[1]))

import torch  # noqa: E402
from safetensors.torch import load_file  # noqa: E402
from toys import read_records  # noqa: E402

from stapo_trl import cli
from stapo_trl.arithmetic import run, warm_start
from stapo_trl.arithmetic.heldout import Accuracy
from stapo_trl.arithmetic.warm_start import build_model, build_tokenizer
from stapo_trl.trainer.resume import last_complete_checkpoint


KILLS = 8
SETTINGS = {
    "per_device_train_batch_size": 16,
    "max_completion_length": 12,
    "s2t_prob_threshold": 0.03,
    "reward_funcs": "toys.content_reward",  # an untrained policy earns nothing from the recipe's own
    "max_steps": 20,
    "save_steps": 1,  # two steps per generation: every other checkpoint falls into a generation batch
    "disable_tqdm": True,
}


def save_untrained(settings, output_dir, callbacks):
    build_model().save_pretrained(output_dir)
    build_tokenizer().save_pretrained(output_dir)


def start(output_dir: Path, last_save: int | None = None) -> int:
    """Fork a run of the recipe, from its last complete checkpoint where there is one, that dies in a `torch.save`."""
    child = os.fork()
    if child:
        return child
    if last_save is not None:
        saves = itertools.count(1)

        def save(value, file, *args, **kwargs):
            if next(saves) == last_save:
                Path(file).write_bytes(b"half")
                os.kill(os.getpid(), signal.SIGKILL)
            torch_save(value, file, *args, **kwargs)

        torch_save, torch.save = torch.save, save
    log = os.open(output_dir.with_suffix(".log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    arguments = SETTINGS | {"output_dir": output_dir}
    if last_complete_checkpoint(output_dir):
        arguments["resume_from_checkpoint"] = True
    try:
        cli.main(["train", *(word for name, value in arguments.items() for word in (f"--{name}", str(value)))])
    except BaseException:
        sys.excepthook(*sys.exc_info())
        os._exit(1)
    os._exit(0)


def last_step(output_dir: Path) -> int:
    """Step of the last complete checkpoint."""
    return int((last_complete_checkpoint(output_dir) or "checkpoint-0").rpartition("-")[2])


def main(folder: Path) -> None:
    os.environ["STAPO_CACHE"] = str(folder / "cache")
    torch.set_num_threads(1)
    warm_start.train_warm_start = save_untrained
    # What the recipe measures before and after is no part of this
    run.measure_accuracy = lambda *args, **kwargs: Accuracy(0.0, 0.0)

    assert os.waitpid(start(folder / "whole"), 0)[1] == 0, (folder / "whole.log").read_text()
    stopped, rng = [], random.Random()
    for kill in range(KILLS):
        before = last_step(folder / "killed")
        if kill % 2:
            how = f"save {rng.randint(1, 8)}"  # a checkpoint here takes four
            child = start(folder / "killed", last_save=int(how.split()[1]))
        else:
            number = rng.choice([signal.SIGKILL, signal.SIGTERM])
            how = number.name
            child = start(folder / "killed")
            deadline = time.monotonic() + 20
            while last_step(folder / "killed") == before < SETTINGS["max_steps"] and time.monotonic() < deadline:
                time.sleep(0.01)
            time.sleep(rng.uniform(0.0, 0.3))
            os.kill(child, number)
        os.waitpid(child, 0)
        stopped.append((how, last_step(folder / "killed")))
    print("stopped by, after step:", stopped)
    assert os.waitpid(start(folder / "killed"), 0)[1] == 0, (folder / "killed.log").read_text()[-5000:]
    whole, killed = (load_file(folder / name / "model.safetensors") for name in ("whole", "killed"))
    assert whole.keys() == killed.keys() and all(torch.equal(whole[name], killed[name]) for name in whole)
    before = build_model().state_dict()
    assert not any(torch.equal(whole[name], before[name]) for name in whole)
    assert read_records(folder / "whole") == read_records(folder / "killed")
    print("the same weights, metrics and token log")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
