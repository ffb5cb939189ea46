"""accelerate_configs/: each loads, and two gloo processes under each engine train as one process does."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
import trl
from accelerate.commands.config.config_args import load_config_from_file


ROOT = Path(__file__).parents[2]
CONFIGS = ROOT / "accelerate_configs"
TRL_CONFIGS = Path(trl.__file__).parent / "accelerate_configs"
TYPES = {
    "single_gpu": "NO",
    "multi_gpu": "MULTI_GPU",
    "fsdp2": "FSDP",
    "deepspeed_zero1": "DEEPSPEED",
    "deepspeed_zero2": "DEEPSPEED",
    "deepspeed_zero3": "DEEPSPEED",
}
# Configuration for two CPU processes: the DistributedType that the trainer must report
ENGINES = {
    "ddp": "MULTI_CPU",
    "fsdp2": "FSDP",
    "deepspeed_zero1": "DEEPSPEED",
    "deepspeed_zero2": "DEEPSPEED",
    "deepspeed_zero3": "DEEPSPEED",
}


@pytest.mark.parametrize("name", TYPES)
def test_a_configuration_loads_and_has_trls_fields(name):
    own = load_config_from_file(str(CONFIGS / f"{name}.yaml")).to_dict()
    trls = load_config_from_file(str(TRL_CONFIGS / f"{name.removeprefix('deepspeed_')}.yaml")).to_dict()
    assert own["distributed_type"] == TYPES[name]
    # Two differences: one GPU is one process, and accumulation is the trainer's (a number here would win over it)
    trls.get("deepspeed_config", {}).pop("gradient_accumulation_steps", None)
    assert own == trls | {"num_processes": 1 if name == "single_gpu" else 8}


def test_every_configuration_is_tested():
    assert {path.stem for path in CONFIGS.glob("*.yaml")} == TYPES.keys()
    assert {path.stem for path in (CONFIGS / "cpu").glob("*.yaml")} == ENGINES.keys()


def run(command: list[str]) -> str:
    process = subprocess.run(
        [sys.executable, *command],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=ROOT,
        env={**os.environ, "CI": "1"},
    )
    assert process.returncode == 0, process.stdout[-3000:] + process.stderr[-6000:]
    return process.stdout


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    file = tmp_path_factory.mktemp("engines") / "reference.pt"
    run(["tests/trainer/engines.py", "reference", str(file)])
    return str(file)


@pytest.mark.slow
@pytest.mark.parametrize("name", ENGINES)
def test_two_processes_silence_and_train_as_one(name, reference):
    if ENGINES[name] == "DEEPSPEED" and importlib.util.find_spec("deepspeed") is None:
        pytest.skip('DeepSpeed is not installed: pip install "stapo-trl[deepspeed]"')
    launch = ["-m", "accelerate.commands.launch", "--config_file", f"accelerate_configs/cpu/{name}.yaml"]
    output = run([*launch, "--main_process_port", "0", "tests/trainer/engines.py", ENGINES[name], reference])
    assert "rank 0: all checks passed" in output and "rank 1: all checks passed" in output
