"""`stapo train --dry_run`: every recipe, its arithmetic, and the contradictions it finds."""

import os
import socket

import pytest

from stapo_trl import cli
from stapo_trl.arithmetic.warm_start import build_model
from stapo_trl.cli.recipes import list_recipes, read_recipe


BASE = "qwen3-1.7b-stapo"


@pytest.fixture(autouse=True)
def no_network(monkeypatch):
    monkeypatch.setattr(socket.socket, "connect", lambda *_: pytest.fail("a dry run went to the network"))


def dry_run(capsys, *argv):
    """Exit code, rows of the output, and lines of errors."""
    code = 0
    try:
        cli.main(["train", "--dry_run", *argv])
    except SystemExit as exit:
        code = exit.code
    captured = capsys.readouterr()
    rows = [line.strip().split("  ", 1) for line in captured.out.splitlines()]
    return code, {row[0]: row[1].strip() for row in rows if len(row) == 2}, captured.err.splitlines()


def test_every_recipe_resolves_and_its_estimate_is_within_its_gpu(capsys):
    failures = []
    for name in list_recipes():
        code, rows, errors = dry_run(capsys, "--recipe", name)
        metadata = read_recipe(name)["about"]
        peak = max(float(rows[f"peak of {phase}"]) for phase in ("the update", "generation"))
        available = rows.get(f"available on {metadata['gpu']}")
        expected = str(metadata["gpu_memory"]) if "gpu_memory" in metadata else None
        if (code, errors, available) != (0, [], expected) or (available and peak > float(available)):
            failures.append((name, code, errors, peak, available))
        if rows["optimizer steps per generation"] not in ("1", "2", "4"):
            failures.append((name, rows["optimizer steps per generation"]))
    assert not failures


def test_the_batches_of_the_paper(capsys):
    _, rows, _ = dry_run(capsys, "--recipe", BASE)
    assert rows["completions per optimizer step"] == "8 processes x 1 x 64 accumulated = 512 (64 prompts x 8)"
    assert rows["completions per generation"] == "2,048 (256 prompts x 8)"
    assert rows["optimizer steps per generation"] == "4"
    assert rows["tokens per optimizer step"].startswith("at most 8,388,608 ")  # 512 x (1,024 + 15,360)
    assert rows["problems"] == "17,391, 268 optimizer steps per epoch"  # 67 whole generations x 4
    assert rows["optimizer steps"] == "4,000, 14.9 epochs"
    assert rows["BytedTsinghua-SIA/DAPO-Math-17k"] == "0.3 GB" and rows["Qwen/Qwen3-1.7B-Base"].startswith(
        "about 3.4 GB"
    )
    _, rows, _ = dry_run(capsys, "--recipe", BASE, "--num_processes", "16", "max_steps=-1", "num_train_epochs=2")
    assert rows["completions per generation"] == "4,096 (512 prompts x 8)"
    assert rows["optimizer steps"] == "264, 2 epochs"  # floor(17391 / 512) = 33 generations x 4 x 2


def test_a_recipe_says_nothing_about_the_prompts_of_other_data(capsys, tmp_path):
    data = tmp_path / "short.jsonl"
    data.write_text("".join(f'{{"prompt": "{n}+1=?", "solution": "{n + 1}"}}\n' for n in range(64)))
    overrides = [f"dataset_name={data}", "max_completion_length=32000"]
    code, rows, errors = dry_run(capsys, "--recipe", "qwen3-0.6b-lora-colab", *overrides)
    assert (code, errors) == (0, [])  # 32,000 and the recipe's prompts would be more than the model reads
    assert rows["tokens per optimizer step"].endswith("(prompt of unknown length + completion 32,000)")


def test_a_contradiction_ends_with_code_2_and_a_sentence(capsys):
    cases = [
        (["num_generations=7"], "generation_batch_size (2048) must be divisible by num_generations (7)."),
        (["generation_batch_size=2048"], "can not be both configured"),
        (["steps_per_generation=100"], "steps_per_generation 100 and gradient_accumulation_steps 64"),
        (["vllm_tensor_parallel_size=3"], "does not divide the number of processes, 8"),
        (["vllm_tensor_parallel_size=16"], "does not divide the number of processes, 8"),
        (["vllm_gpu_memory_utilization=40"], "in (0, 1], got 40.0"),
        (["vllm_max_model_length=15400"], "vllm_max_model_length 15400 is less"),
        (["vllm_mode=colocated"], "got 'colocated'"),
        (["fp16=true"], "At most one of fp16 and bf16"),
        (["load_in_4bit=true"], "set use_peft=true"),
        (["use_peft=true", "lora_target_modules=[q_projection]"], "q_projection"),
        (["fp16=true", "bf16=false", "dtype=float16"], "float16 weights cannot hold"),
        (["eval_strategy=steps", "eval_steps=10"], "dapo-math-17k has no split 'test'"),
        (["max_completion_length=32000", "vllm_max_model_length=33024"], "but the model reads 32768"),
        (["max_completion_length=null"], "max_completion_length is not set"),
        (["reward_funcs=no_such_reward"], "Unknown reward function 'no_such_reward'"),
        (["model_name_or_path=null"], "model_name_or_path is missing"),
        (["dataset_name=null"], "No data to train on"),
        (["dataset_name=/no/such.jsonl"], "There is no file or folder /no/such.jsonl"),
        (["dataset_name=such.jsonl"], "There is no file such.jsonl."),
        (["model_name_or_path=/no/model"], "There is no file or folder /no/model"),
        (["--num_processes", "1024"], "One generation takes 32768 prompts, but dapo-math-17k has 17391"),
    ]
    cases = [([BASE, *argv], sentence) for argv, sentence in cases]
    cases += [(["qwen3-0.6b-lora-colab", "bf16=true", "fp16=false"], "T4 has no bf16")]
    failures = []
    for argv, sentence in cases:
        code, _, errors = dry_run(capsys, "--recipe", *argv)
        if code != 2 or len(errors) != 1 or not errors[0].startswith("stapo train: ") or sentence not in errors[0]:
            failures.append((argv, code, errors))
    assert not failures


def test_all_contradictions_are_told_at_once(capsys):
    _, _, errors = dry_run(capsys, "--recipe", BASE, "load_in_4bit=true", "vllm_tensor_parallel_size=3")
    assert len(errors) == 2


def test_a_local_model_and_local_data_are_read_and_text_is_no_markup(tmp_path, capsys):
    build_model().save_pretrained(tmp_path / "model")
    (tmp_path / "sums.jsonl").write_text(
        '{"problem": "1+1?", "solution": "2"}\n{"problem": "2+2?", "solution": "4"}\n'
    )
    overrides = [f"model_name_or_path={tmp_path / 'model'}", f"dataset_name={tmp_path / 'sums.jsonl'}"]
    overrides += ["vllm_max_model_length=2048", "max_completion_length=300", "prompt_format=plain"]
    overrides += ["output_dir=[/bold]", "steps_per_generation=64"]
    capsys.readouterr()
    code, rows, errors = dry_run(capsys, "--recipe", BASE, *overrides)
    assert code == 2 and len(errors) == 2  # 8 x 64 completions are 64 prompts
    assert "One generation takes 64 prompts, but" in errors[0] and "has 2" in errors[0]
    assert "up to 300 tokens, but the model reads 256" in errors[1]
    assert rows["parameters"] == "0.1 M, trained 0.1 M" and rows["output_dir"] == "[/bold]"


def test_a_file_from_elsewhere_runs_nothing(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OWN_VARIABLE", "0")
    (tmp_path / "rewards.py").write_text("open('imported', 'w')\n")
    (tmp_path / "own.yaml").write_text(f"base: {BASE}\nreward_funcs: [rewards.mine]\nenv: {{OWN_VARIABLE: 7}}\n")
    assert dry_run(capsys, "--config", "own.yaml")[0] == 0
    assert not (tmp_path / "imported").exists() and os.environ["OWN_VARIABLE"] == "0"


def test_a_share_that_holds_no_answer_is_told(capsys):
    # 2 GPUs x (0.2 x 80 - 2) GiB less 27.5 of weights; an answer takes 16,384 x 160 KiB = 2.5 GiB
    _, rows, _ = dry_run(capsys, "--recipe", "qwen3-14b-stapo", "vllm_gpu_memory_utilization=0.2")
    assert "holds about 0.2 sequences of full length; vLLM needs room for one" in rows["generation: vLLM"]
