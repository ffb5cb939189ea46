"""What README shows runs: programs and commands on local folders of the same names, its set-up commands in CI."""

import functools
import math
import re
import shlex
from pathlib import Path

import pytest
import torch
from datasets import Dataset
from toys import record_steps
from trl import GRPOConfig

import stapo_trl
from stapo_trl import STAPOConfig, cli
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


def test_every_printed_value_is_what_its_comment_says(capsys):
    (program,) = [block for block in blocks("python") if "print(" in block]
    exec(program, {})
    printed = capsys.readouterr().out.splitlines()
    assert printed == re.findall(r"print\(.*\)  # (.*)", program) != []


def test_the_token_rule_trains_on_the_fifth_with_the_highest_entropy(make_trainer):
    namespace = {}
    exec(blocks("python")[-1], namespace)
    shape = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2, "max_steps": 1}
    trainer = make_trainer(token_rule=namespace["TopEntropy"](), **shape)
    steps = record_steps(trainer)
    trainer.train()
    ((inputs, scores, step),) = steps
    assert len(inputs) == 2
    mask = torch.cat([batch["completion_mask"].bool() for batch in inputs])
    keep, entropies = torch.cat(step.edit.keep_masks), torch.cat([entropies for _, entropies in scores])
    kept, left_out = entropies[mask & keep], entropies[mask & ~keep]
    assert len(kept) == math.ceil(0.2 * mask.sum()) and kept.min() > left_out.max()
    assert trainer.state.log_history[0]["top_entropy/threshold"] == pytest.approx(kept.min().item())


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


def test_every_option_is_listed():
    own = STAPOConfig.__dataclass_fields__.keys() - GRPOConfig.__dataclass_fields__.keys()
    assert not [field for field in own if f"| `{field}` |" not in README]


def test_the_metrics_of_a_run_are_listed_and_no_others(make_trainer):
    trainer = make_trainer(token_stats_steps=1, on_nonfinite="skip")
    compute_loss = trainer._compute_loss
    # The second step has no finite loss, for the metric that counts such steps
    trainer._compute_loss = lambda *inputs: compute_loss(*inputs) * (math.nan if trainer.state.global_step else 1.0)
    with pytest.warns(UserWarning, match="step 2 is not finite"):
        trainer.train()
    logged = {name for entry in trainer.state.log_history for name in entry if name.startswith("s2t/")}
    by_quadrant = {name for name in logged if name.count("/") == 3}
    assert by_quadrant and "`s2t/<sign>/<quadrant>/<statistic>`" in README
    assert logged - by_quadrant == set(re.findall(r"`(s2t/\w+)`", README))


def test_it_has_at_most_200_lines():
    assert len(README.splitlines()) <= 200
