"""`stapo train`: the embedded recipe from its cache to its tables, and what it refuses."""

import json
import sys

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import DatasetMixtureConfig

from stapo_trl import cli, warm_start
from stapo_trl.train import TrainArguments, get_datasets, get_reward_func
from stapo_trl.warm_start import build_model, build_tokenizer


@pytest.fixture
def untrained_start(monkeypatch, tmp_path):
    """Spares the supervised steps."""
    monkeypatch.setenv("STAPO_CACHE", str(tmp_path / "cache"))

    def save(settings, output_dir, callbacks):
        build_model().save_pretrained(output_dir)
        build_tokenizer().save_pretrained(output_dir)

    monkeypatch.setattr(warm_start, "train_warm_start", save)


SHORT = ["--per_device_train_batch_size", "16", "--s2t_prob_threshold", "0.03", "--max_completion_length", "12"]


def test_without_arguments_the_embedded_recipe_runs_to_its_tables(untrained_start, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    cli.main(["train", *SHORT, "--max_steps", "2"])
    run, output = tmp_path / "stapo-run", capsys.readouterr().out
    for file in ("model.safetensors", "tokenizer.json", "metrics.jsonl", "metrics.png"):
        assert (run / file).stat().st_size > 0
    assert "500 held-out problems, 2 optimizer steps" in output and "greedy" in output and "sampled" in output
    assert "--output_dir stapo-run --resume_from_checkpoint true --max_steps 242" in output
    AutoModelForCausalLM.from_pretrained(run)
    AutoTokenizer.from_pretrained(run)


@pytest.mark.slow
def test_a_resumed_recipe_equals_an_uninterrupted_one(untrained_start, tmp_path):
    whole, parts = str(tmp_path / "whole"), str(tmp_path / "parts")
    command = ["train", *SHORT, "--reward_funcs", "toys.content_reward", "--save_steps", "1"]
    cli.main([*command, "--output_dir", whole, "--max_steps", "4"])
    cli.main([*command, "--output_dir", parts, "--max_steps", "3"])  # inside a generation batch of two steps
    cli.main([*command, "--output_dir", parts, "--max_steps", "4", "--resume_from_checkpoint", "true"])
    expected, found = (AutoModelForCausalLM.from_pretrained(folder).state_dict() for folder in (whole, parts))
    assert all(torch.equal(found[name], value) for name, value in expected.items())
    assert not any(torch.equal(found[name], value) for name, value in build_model().state_dict().items())
    steps = [json.loads(line)["step"] for line in open(tmp_path / "parts" / "metrics.jsonl") if "s2t/entropy" in line]
    assert steps == [1, 2, 3, 4]


def test_rewards_are_found_by_name_and_by_dotted_path(tmp_path, monkeypatch, make_trainer):
    args = make_trainer().args
    (tmp_path / "own_rewards.py").write_text("def zero(completions, **kwargs):\n    return [0.0] * len(completions)\n")
    monkeypatch.chdir(tmp_path)
    assert get_reward_func("own_rewards.zero", args)(["a", "b"]) == [0.0, 0.0]
    assert get_reward_func("math_accuracy_reward", args)(["\\boxed{2}"], solution=["2"]) == [1.0]
    # The longest completion here has 12 tokens, and the punishment starts 12 // 5 = 2 tokens before
    punish = get_reward_func("soft_overlong_punishment", args)
    assert punish(completions=None, completion_ids=[[1] * 10, [1] * 11, [1] * 12]) == [0.0, -0.5, -1.0]
    for name in ("accuracy", "own_rewards.one", "no_such_module.reward"):
        with pytest.raises(ValueError, match=name):
            get_reward_func(name, args)


def test_a_model_or_data_alone_is_refused_with_a_sentence(tmp_path, capsys):
    base = ["--output_dir", str(tmp_path), "--use_cpu", "true", "--bf16", "false"]
    with pytest.raises(SystemExit, match="stapo train: .*give --dataset_name"):
        cli.main(["train", "--model_name_or_path", "some/model", *base])
    with pytest.raises(SystemExit):
        cli.main(["train", "--dataset_name", "some/data", *base])
    assert "--model_name_or_path is missing" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--config", "evil.yaml"], "could not determine a constructor for the tag"),
        (["--config", "absent.yaml"], "No such file or directory: 'absent.yaml'"),
        (["--s2t_prob_threshold", "2"], "`s2t_prob_threshold` .tau_p. must be a number"),
        (["--reward_funcs", "nothing"], "Unknown reward function 'nothing'"),
        (["--no_such_argument", "1"], "--no_such_argument"),
        (["--dataset_name", "rows.jsonl"], "rows.jsonl, line 1, is not JSON"),
        (["--dataset_name", "absent"], "absent"),
    ],
)
def test_a_mistake_ends_with_a_sentence_and_runs_nothing(tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "evil.yaml").write_text("model_name_or_path: !!python/object/apply:os.system ['touch run']\n")
    (tmp_path / "rows.jsonl").write_text("garbage\n")
    base = ["--model_name_or_path", "some/model", "--output_dir", "out", "--use_cpu", "true", "--bf16", "false"]
    with pytest.raises(SystemExit, match=f"stapo train: .*{message}"):
        cli.main(["train", *base, *arguments])
    assert not (tmp_path / "run").exists()


def test_help_and_version_work(capsys):
    for arguments in (["--help"], ["--version"], ["train", "--help"]):
        with pytest.raises(SystemExit) as exit:
            cli.main(arguments)
        assert exit.value.code == 0
    assert "s2t_prob_threshold" in capsys.readouterr().out
    assert sys.modules["stapo_trl.train"].EMBEDDED and TrainArguments().reward_funcs == ["math_accuracy_reward"]


def test_named_sets_and_local_files_are_loaded_into_the_schema(tmp_path, monkeypatch, capsys):
    script_args = TrainArguments(
        dataset_name=str(tmp_path / "sums.csv"), problem_column="text", solution_column="result", prompt_format="plain"
    )
    (tmp_path / "sums.csv").write_text("text,result\n1+1?,02\n3?,\n")
    train_dataset, eval_dataset = get_datasets(script_args, DatasetMixtureConfig(), evaluates=False)
    assert train_dataset["solution"][:] == ["02"] and eval_dataset is None
    with pytest.raises(ValueError, match="has no split 'test'"):
        get_datasets(script_args, DatasetMixtureConfig(), evaluates=True)

    seen = []
    monkeypatch.setattr("stapo_trl.train.find_loader", lambda name: lambda **options: seen.append(options))
    script_args = TrainArguments(dataset_name="gsm8k", dataset_config="socratic", dataset_streaming=True)
    get_datasets(script_args, DatasetMixtureConfig(), evaluates=True)
    common = {"columns": {}, "prompt_format": "chat", "streaming": True, "unusable": "drop", "config": "socratic"}
    assert seen == [common | {"split": "train"}, common | {"split": "test"}]
