"""`stapo train`: the embedded recipe from its cache to its tables, and what it refuses."""

import json

import pytest
import torch
from peft import LoraConfig
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import is_bitsandbytes_available
from trl import DatasetMixtureConfig

from stapo_trl import cli
from stapo_trl.arithmetic import warm_start
from stapo_trl.arithmetic.problems import load_arithmetic
from stapo_trl.arithmetic.warm_start import build_model, build_tokenizer
from stapo_trl.cli.recipes.arguments import TrainArguments, get_datasets, get_reward_func


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
    uninterrupted, parts = str(tmp_path / "uninterrupted"), str(tmp_path / "parts")
    command = ["train", *SHORT, "--reward_funcs", "toys.content_reward", "--save_steps", "1"]
    cli.main([*command, "--output_dir", uninterrupted, "--max_steps", "4"])
    cli.main([*command, "--output_dir", parts, "--max_steps", "3"])  # inside a generation batch of two steps
    cli.main([*command, "--output_dir", parts, "--max_steps", "4", "--resume_from_checkpoint", "true"])
    expected, found = (AutoModelForCausalLM.from_pretrained(folder).state_dict() for folder in (uninterrupted, parts))
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
    with pytest.raises(SystemExit):
        cli.main(["train", "--model_name_or_path", "some/model", *base])
    assert "give --dataset_name" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        cli.main(["train", "--dataset_name", "some/data", *base])
    assert "--model_name_or_path is missing" in capsys.readouterr().err


QLORA_ON_T4 = ["--fp16", "true", "--bf16", "false", "--dtype", "float16", "--use_peft", "--load_in_4bit"]


@pytest.fixture
def command(tmp_path):
    """Of a local model and a local file, up to the flags of a test."""
    build_model().save_pretrained(tmp_path / "model")
    build_tokenizer().save_pretrained(tmp_path / "model")
    (tmp_path / "sums.csv").write_text("problem,solution\n1+1?,2\n1+2?,3\n2+2?,4\n2+3?,5\n")
    own = ["--model_name_or_path", str(tmp_path / "model"), "--dataset_name", str(tmp_path / "sums.csv")]
    settings = ["--prompt_format", "plain", "--output_dir", str(tmp_path / "run"), "--use_cpu", "true"]
    return ["train", *own, *settings, *SHORT, "--max_steps", "1"]


def test_the_flags_of_qlora_on_a_t4_reach_the_trainer(command, monkeypatch):
    """A T4 has no bf16 of its own. What bitsandbytes does with these needs a GPU."""

    class Built(Exception):
        pass

    def build(**arguments):
        raise Built(arguments)

    monkeypatch.setattr("stapo_trl.cli.train.is_bitsandbytes_available", lambda: True)
    monkeypatch.setattr("stapo_trl.cli.train.STAPOTrainer", build)
    with pytest.raises(Built) as caught:
        cli.main([*command, *QLORA_ON_T4, "--lora_r", "8", "--use_bnb_nested_quant"])
    (found,) = caught.value.args
    assert found["args"].fp16 and not found["args"].bf16 and found["args"].mixed_precision == "fp16"
    assert found["args"].model_init_kwargs["dtype"] == "float16"
    quantization = found["quantization_config"]
    assert quantization.load_in_4bit and quantization.bnb_4bit_quant_type == "nf4"
    assert quantization.bnb_4bit_compute_dtype == torch.float16 and quantization.bnb_4bit_use_double_quant
    assert found["peft_config"].r == 8


def test_quantisation_without_bitsandbytes_is_refused_in_one_sentence(command, monkeypatch, capsys):
    monkeypatch.setattr("stapo_trl.cli.train.is_bitsandbytes_available", lambda: False)
    with pytest.raises(SystemExit):
        cli.main([*command, *QLORA_ON_T4])
    assert capsys.readouterr().err.endswith("need bitsandbytes: pip install -U bitsandbytes\n")


def test_the_embedded_recipe_does_not_pretend_to_train_an_adapter(capsys):
    with pytest.raises(SystemExit):
        cli.main(["train", "--use_peft"])
    assert "The embedded recipe trains all weights of its own model" in capsys.readouterr().err


def check_adapter(folder):
    adapter = load_file(folder / "adapter_model.safetensors")
    assert all(value.dtype == torch.float32 and value.isfinite().all() for value in adapter.values())
    assert all(value.any() for name, value in adapter.items() if "lora_B" in name)  # which begins as zero


def test_an_adapter_is_trained_in_fp16(command, tmp_path):
    cli.main([*command, *QLORA_ON_T4[:-1], "--warmup_steps", "0", "--reward_funcs", "toys.content_reward"])
    check_adapter(tmp_path / "run")


@pytest.mark.skipif(not is_bitsandbytes_available(), reason="bitsandbytes is not installed")
def test_an_adapter_of_a_quantised_model_is_trained_in_fp16(command, tmp_path):
    cli.main([*command, *QLORA_ON_T4, "--warmup_steps", "0", "--reward_funcs", "toys.content_reward"])
    check_adapter(tmp_path / "run")


def test_the_adapter_of_a_quantised_model_suits_the_loss_scaler(make_trainer):
    for precision, dtype in (("fp16", torch.float32), ("bf16", torch.bfloat16)):
        model = build_model()
        model.is_loaded_in_4bit = True
        settings = {"fp16": False, "bf16": False} | {precision: True}
        trainer = make_trainer(model=model, peft_config=LoraConfig(target_modules=["q_proj"]), **settings)
        trained = {parameter.dtype for parameter in trainer.model.parameters() if parameter.requires_grad}
        assert trained == {dtype}, precision


def test_a_mistake_ends_with_a_sentence_and_runs_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "evil.yaml").write_text("model_name_or_path: !!python/object/apply:os.system ['touch run']\n")
    (tmp_path / "rows.jsonl").write_text("garbage\n")
    base = ["--model_name_or_path", "some/model", "--output_dir", "out", "--use_cpu", "true", "--bf16", "false"]
    cases = [
        (["--config", "evil.yaml"], "could not determine a constructor for the tag"),
        (["--config", "absent.yaml"], "There is no file absent.yaml"),
        (["--s2t_prob_threshold", "2"], "`s2t_prob_threshold` (tau_p) must be a number"),
        (["--reward_funcs", "nothing"], "Unknown reward function 'nothing'"),
        (["--no_such_argument", "1"], "there is no setting 'no_such_argument'"),
        (["--dataset_name", "rows.jsonl"], "rows.jsonl, line 1, is not JSON"),
        (["--dataset_name", "absent"], "absent"),
    ]
    failures = []
    for arguments, message in cases:
        with pytest.raises(SystemExit):
            cli.main(["train", *base, *arguments])
        lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("stapo train: ")]
        if len(lines) != 1 or message not in lines[0] or (tmp_path / "run").exists():
            failures.append((arguments, lines))
    assert not failures


def test_help_and_version_work(capsys):
    for arguments in (["--help"], ["--version"], ["train", "--help"]):
        with pytest.raises(SystemExit) as exit:
            cli.main(arguments)
        assert exit.value.code == 0
    assert "s2t_prob_threshold" in capsys.readouterr().out
    assert TrainArguments().reward_funcs == ["math_accuracy_reward"]


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
    monkeypatch.setattr(
        "stapo_trl.cli.recipes.arguments.find_loader", lambda name: lambda **options: seen.append(options)
    )
    script_args = TrainArguments(dataset_name="gsm8k", dataset_config="socratic", dataset_streaming=True)
    get_datasets(script_args, DatasetMixtureConfig(), evaluates=True)
    common = {"columns": {}, "prompt_format": "chat", "streaming": True, "unusable": "drop", "config": "socratic"}
    assert seen == [common | {"split": "train"}, common | {"split": "test"}]


def test_a_recipe_trains_an_adapter_on_a_local_model_and_local_data(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    build_model().save_pretrained("model")
    build_tokenizer().save_pretrained("model")
    rows = load_arithmetic("train", 16)
    with open("sums.jsonl", "w") as file:
        for row in rows:
            file.write(json.dumps({"problem": row["prompt"], "solution": row["solution"]}) + "\n")
    small = ["model_name_or_path=model", "dataset_name=sums.jsonl", "prompt_format=plain", "output_dir=run"]
    small += [
        "max_steps=2",
        "use_cpu=true",
        "fp16=false",
        "dtype=float32",
        "max_completion_length=8",
        "s2t_prob_threshold=0.1",
    ]
    cli.main(["train", "--recipe", "qwen3-0.6b-lora-colab", *small, "--gradient_checkpointing", "false"])
    assert (tmp_path / "run" / "adapter_model.safetensors").stat().st_size > 0
    steps = [json.loads(line)["step"] for line in open("run/metrics.jsonl") if "s2t/candidate_share" in line]
    assert steps == [1, 2]
