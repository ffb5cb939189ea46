"""What README shows runs: its program and its command on local folders of the same names, its commands in CI."""

import functools
import re
import shlex
from pathlib import Path

import pytest
from datasets import Dataset
from trl import GRPOConfig

import stapo_trl
from stapo_trl import cli
from stapo_trl.arithmetic.problems import load_arithmetic
from stapo_trl.arithmetic.warm_start import build_model, build_tokenizer


ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
SMALL = {
    "use_cpu": True,
    "bf16": False,
    "gradient_checkpointing": False,
    "max_steps": 1,
    "max_completion_length": 8,
    "report_to": "none",
}


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


@pytest.fixture
def local_hub(tmp_path, monkeypatch):
    """The working directory holds a tiny model and tiny data under the names that README gives."""
    monkeypatch.chdir(tmp_path)
    tokenizer = build_tokenizer()
    tokenizer.chat_template = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
    build_model().save_pretrained("Qwen/Qwen3-0.6B-Base")
    tokenizer.save_pretrained("Qwen/Qwen3-0.6B-Base")
    rows = load_arithmetic("train", 16)
    gsm8k = Dataset.from_dict(
        {"question": rows["prompt"], "answer": [f"{s}+0=<<{s}+0={s}>>{s}\n#### {s}" for s in rows["solution"]]}
    )
    (tmp_path / "openai/gsm8k/main").mkdir(parents=True)
    gsm8k.to_parquet("openai/gsm8k/main/train.parquet")
    Path("openai/gsm8k/README.md").write_text(
        "---\nconfigs:\n- config_name: main\n  data_files:\n  - split: train\n    path: main/train.parquet\n---\n"
    )
    chat = [
        {"prompt": [{"role": "user", "content": row["prompt"]}], "solution": f"\\boxed{{{row['solution']}}}"}
        for row in rows
    ]
    (tmp_path / "trl-lib/DeepMath-103K").mkdir(parents=True)
    Dataset.from_list(chat).to_parquet("trl-lib/DeepMath-103K/train.parquet")
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    return tmp_path


def test_the_program_runs(local_hub, monkeypatch):
    program = blocks("python")[0]
    monkeypatch.setattr(stapo_trl, "STAPOConfig", functools.partial(stapo_trl.STAPOConfig, **SMALL), raising=False)
    namespace = {}
    exec(program, namespace)
    trainer = namespace["trainer"]
    assert trainer.state.global_step == 1 and trainer.state.log_history
    monkeypatch.delattr(stapo_trl, "STAPOConfig")


def test_the_other_programs_print_what_their_comments_say(capsys):
    for program in blocks("python")[1:]:
        exec(program, {})
        printed = capsys.readouterr().out.splitlines()
        assert printed == re.findall(r"print\(.*\)  # (.*)", program) != []


def test_the_command_trains_an_adapter_and_leaves_metrics(local_hub):
    (command,) = [block for block in blocks("bash") if block.startswith("stapo train")]
    arguments = shlex.split(command.replace("\\\n", " "))[1:]
    for name, value in SMALL.items():
        arguments += [f"--{name}", str(value)]
    cli.main(arguments)
    run = local_hub / "qwen3-0.6b-stapo"
    assert (run / "adapter_model.safetensors").exists() and (run / "metrics.jsonl").read_text()


def test_ci_runs_the_commands():
    ci = (ROOT / ".ci" / "run").read_text()
    install, test = (block for block in blocks("bash") if "-m venv" in block)
    for part in test.strip().split(" && "):
        assert part.removeprefix("python3 ") in ci, part
    assert "stapo train" in install and ".venv/bin/stapo train" in ci


def test_every_option_and_metric_is_listed():
    from stapo_trl.trainer import nonfinite
    from stapo_trl.trainer import optimizer_step as silencing
    from stapo_trl.trainer import stapo as stapo_trainer

    for field in stapo_trl.STAPOConfig.__dataclass_fields__:
        if field not in GRPOConfig.__dataclass_fields__:
            assert f"`{field}`" in README
    source = "".join(Path(module.__file__).read_text() for module in (nonfinite, silencing, stapo_trainer))
    logged = set(re.findall(r'"(s2t/\w+)"', source))
    assert logged == set(re.findall(r"`(s2t/\w+)`", README))
