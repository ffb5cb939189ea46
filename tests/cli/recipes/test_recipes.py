"""The recipes of the package: they load, say what the paper says, and differ from their base where they should."""

import shutil
import sys
import zipfile
from importlib.util import find_spec
from pathlib import Path
from subprocess import run

import pytest

from stapo_trl import cli
from stapo_trl.cli.recipes import FOLDER, list_recipes, load_recipe, read_recipe
from stapo_trl.evaluation.sampling.settings import PAPER_DECODINGS, PAPER_SAMPLES
from stapo_trl.rewards import strict_math_accuracy_reward
from stapo_trl.rules import make_rule
from stapo_trl.rules.stare import STARE
from stapo_trl.rules.top_entropy import TopEntropy


ROOT = Path(__file__).parents[3]
BASE = "qwen3-1.7b-stapo"
DIFFERENCES = {  # from the base, besides the output folder
    "qwen3-8b-stapo": {"model_name_or_path", "vllm_gpu_memory_utilization"},
    "qwen3-14b-stapo": {"model_name_or_path", "vllm_gpu_memory_utilization", "vllm_tensor_parallel_size"},
    "grpo": {"s2t_entropy_quantile", "loss_type", "epsilon_high"},
    "justrl": {"s2t_entropy_quantile"},
    "justrl-fullmask": {"s2t_entropy_quantile"},
    "20-entropy": {"token_rule"},
    "stare": {"token_rule"},
    "ablation-high-entropy": {"s2t_selection"},
    "ablation-random": {"s2t_selection"},
}


def write(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)


def test_the_base_has_the_settings_of_the_paper():
    settings = load_recipe(BASE)
    paper = {
        "model_name_or_path": "Qwen/Qwen3-1.7B-Base",
        "dataset_name": "dapo-math-17k",
        "learning_rate": 1e-6,
        "lr_scheduler_type": "constant_with_warmup",
        "warmup_steps": 10,
        "max_grad_norm": 1.0,
        "num_generations": 8,
        "temperature": 1.0,
        "top_p": 1.0,
        "max_completion_length": 15 * 1024,
        "per_device_train_batch_size": 1,
        "epsilon": 0.2,
        "epsilon_high": 0.28,
        "loss_type": "dapo",
        "beta": 0.0,
        "entropy_coef": 0.0,
        "s2t_prob_threshold": 0.002,
        "s2t_entropy_quantile": 0.75,
        "s2t_entropy_population": "candidates",
        "s2t_selection": "low_entropy",
    }
    assert {key: settings[key] for key in paper} == paper
    gpus = read_recipe(BASE)["about"]["gpus"]
    assert gpus * settings["steps_per_generation"] == 256 * 8  # rollout of 256 prompts, micro-batches of 1
    assert gpus * settings["gradient_accumulation_steps"] == 64 * 8  # mini-batches of 64 prompts
    assert read_recipe(BASE)["about"]["data"]["dapo-math-17k"]["prompt_length"] == 1024
    assert strict_math_accuracy_reward([r"\boxed{5}", r"\boxed{6}"], solution=["5", "5"]) == [1.0, -1.0]
    assert settings["reward_funcs"] == ["strict_math_accuracy_reward"]


def test_it_is_evaluated_by_the_protocol_of_the_paper():
    for name in (BASE, *DIFFERENCES):
        assert read_recipe(name)["about"]["evaluation"] == "--protocol paper"
    assert [(s.temperature, s.top_p, s.max_new_tokens) for s in PAPER_DECODINGS] == [(1, 1, 20480), (0.7, 0.9, 20480)]
    assert set(PAPER_SAMPLES.values()) == {32}


def test_recipes_of_the_comparison_differ_from_the_base_where_they_should():
    base, recipes = load_recipe(BASE), {name: load_recipe(name) for name in DIFFERENCES}
    different = {
        name: {key for key in settings.keys() | base.keys() if base.get(key) != settings.get(key)}
        for name, settings in recipes.items()
    }
    assert different == {name: keys | {"output_dir"} for name, keys in DIFFERENCES.items()}
    assert {key for settings in recipes.values() for key in settings.keys() ^ base.keys()} == {"token_rule"}


def test_baselines_and_ablations_have_their_values():
    assert load_recipe("justrl")["s2t_entropy_quantile"] == 0.0
    assert load_recipe("justrl-fullmask")["s2t_entropy_quantile"] == 1.0
    grpo = load_recipe("grpo")
    assert (grpo["epsilon"], grpo["epsilon_high"], grpo["loss_type"]) == (0.2, 0.2, "grpo")
    for name, rule in (("20-entropy", TopEntropy(share=0.2)), ("stare", STARE("O1", 0.1, 1.1, 0.9, 0.3))):
        assert make_rule(load_recipe(name)["token_rule"]) == rule
    for selection in ("high_entropy", "random"):
        assert load_recipe(f"ablation-{selection.replace('_', '-')}")["s2t_selection"] == selection


def test_every_recipe_says_what_it_needs():
    failures = []
    for name in list_recipes():
        recipe = read_recipe(name)
        metadata = recipe["about"]
        complete = metadata.keys() >= {"summary", "wall_time", "gpus", "gpu", "evaluation"}
        complete &= "problems" in metadata["data"][recipe["dataset_name"]]
        if name != "arithmetic":
            complete &= recipe["model_name_or_path"] in metadata["architecture"] and metadata["gpu_memory"] > 0
            complete &= (ROOT / "accelerate_configs" / metadata["launch"]).is_file()
        if not complete:
            failures.append(name)
    assert not failures


def test_every_recipe_writes_to_a_folder_of_its_own():
    folders = [load_recipe(name)["output_dir"] for name in list_recipes()]
    assert len(set(folders)) == len(folders)


def test_a_base_is_a_recipe_or_a_file_and_lists_replace(tmp_path):
    write(tmp_path / "middle.yaml", "base: justrl\nlearning_rate: 2.0e-6\nabout: {summary: mine}\n")
    own = write(tmp_path / "own.yml", "base: middle.yaml\nreward_funcs: [think_format_reward]\n")
    settings = load_recipe(own, {"seed": 1})
    assert settings == load_recipe("justrl") | {
        "learning_rate": 2e-6,
        "reward_funcs": ["think_format_reward"],
        "seed": 1,
    }
    assert read_recipe(own)["about"] == read_recipe("justrl")["about"] | {"summary": "mine"}


def test_what_cannot_be_read_is_refused_in_one_sentence(tmp_path):
    path = tmp_path / "x.yaml"
    for text, message in {
        "a: !!python/object/apply:os.system [touch hacked]": "not plain YAML, line 1: .*tag",
        "a: [1": "not plain YAML, line 1",
        "seed: 1\nmax_steps: 2\nseed: 2": "not plain YAML, line 3: the key 'seed' stands there twice",
        "about: {gpus: 1, gpus: 2}": "not plain YAML, line 1: the key 'gpus' stands there twice",
        "- 1": "must hold a YAML mapping",
        "": "must hold a YAML mapping",
        "1: 2": "must hold a YAML mapping",
        "[" * 5000: "not plain YAML: RecursionError",
        "base: x.yaml": r"is its own base: x.yaml -> x.yaml\.",
        "base: [grpo, justrl]": "must be the name of one recipe",
        "base: grpoo": "no recipe 'grpoo': did you mean 'grpo'",
        "base: missing.yaml": "no file missing.yaml",
        "about: 3": "must be a mapping",
        "about: {gpu_s: 3}": "no key 'gpu_s': did you mean 'gpus'",
        "about: {gpus: many}": "'gpus' in .* has the wrong type, got 'many'",
        "about: {data: {gsm8k: {problems: many}}}": "'problems' in .* has the wrong type",
    }.items():
        path.write_text(text)
        with pytest.raises(ValueError, match=message) as error:
            load_recipe(path)
        assert "\n" not in str(error.value)
    path.write_bytes(b"a: \xff")
    with pytest.raises(ValueError, match="not plain YAML"):
        load_recipe(path)
    write(tmp_path / "y.yaml", "base: x.yaml")
    path.write_text("base: y.yaml")
    with pytest.raises(ValueError, match=r"is its own base: x.yaml -> y.yaml -> x.yaml\."):
        load_recipe(path)
    with pytest.raises(ValueError, match="did you mean 'arithmetic'"):
        load_recipe("arithmetik")


def test_the_list_names_model_data_hardware_and_time_of_each(capsys):
    cli.main(["recipes"])
    lines = {line.split()[0]: line for line in capsys.readouterr().out.splitlines() if line}
    for name in list_recipes():
        settings, metadata = load_recipe(name), read_recipe(name)["about"]
        parts = (settings["model_name_or_path"], settings["dataset_name"], metadata["gpu"], metadata["wall_time"])
        for part in (*parts, "measured" if "measured" in metadata else "estimated"):
            assert part in lines[name]


@pytest.mark.slow
def test_a_wheel_holds_every_recipe(tmp_path):
    if find_spec("setuptools") is None:
        pytest.skip("setuptools is not installed")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path)
    shutil.copytree(ROOT / "stapo_trl", tmp_path / "stapo_trl", ignore=shutil.ignore_patterns("__pycache__"))
    run([sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", tmp_path, tmp_path], check=True, timeout=300)
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    recipes = {f"stapo_trl/cli/recipes/{path.relative_to(FOLDER)}" for path in FOLDER.glob("*/*.yaml")}
    assert len(recipes) == len(list_recipes()) > 0 and recipes <= set(names)
