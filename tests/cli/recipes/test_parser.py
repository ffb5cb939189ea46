"""The command line over a recipe."""

import os

from trl import ModelConfig

from stapo_trl import STAPOConfig
from stapo_trl.cli.recipes.parser import RecipeParser


CPU = ["output_dir=run", "use_cpu=true", "bf16=false"]


def parse(argv, default=None):
    parser = RecipeParser((STAPOConfig, ModelConfig), prog="test")
    options, settings, metadata, argv = parser.read_argv(argv, default)
    return (*parser.parse(settings, argv), options, metadata)


def assert_refused(cases, capsys):
    """Each command line ends with code 2 and a last line that holds its sentence, without the usage."""
    failures = []
    for argv, sentence in cases:
        code = None
        try:
            parse(argv)
        except SystemExit as exit:
            code = exit.code
        lines = capsys.readouterr().err.splitlines() or [""]
        if code != 2 or sentence not in lines[-1] or any("usage" in line for line in lines):
            failures.append((argv, code, lines))
    assert not failures


def test_options_go_over_overrides_and_overrides_over_the_recipe(tmp_path):
    recipe = tmp_path / "own.yaml"
    recipe.write_text(
        "learning_rate: 1e-5\nseed: 1\nnum_generations: 4\nlora_target_modules: [a, b]\nabout: {gpus: 2}\n"
    )
    argv = ["--config", str(recipe), "seed=2", "num_generations=2", *CPU, "--num_generations", "8"]
    config, model, options, metadata = parse(argv)
    assert (config.learning_rate, config.seed, config.num_generations) == (1e-5, 2, 8)
    assert model.lora_target_modules == ["a", "b"] and metadata == {"gpus": 2} and not options.dry_run


def test_overrides_have_the_types_of_their_fields():
    overrides = ["learning_rate=1e-5", "output_dir=010", "fp16=False", "lora_target_modules=[q, v]"]
    overrides += ["model_init_kwargs={a: 1}", "vllm_max_model_length=null", "run_name=[a=b"]
    config, model, *_ = parse([*CPU, *overrides])
    assert config.learning_rate == 1e-5 and config.output_dir == "010" and config.fp16 is False
    assert model.lora_target_modules == ["q", "v"] and config.model_init_kwargs == {"a": 1}
    assert config.vllm_max_model_length is None and config.run_name == "[a=b"


def test_the_value_of_an_option_is_no_override():
    config, *_ = parse([*CPU, "--run_name", "seed=3", "--report_to", "none", "learning_rate=1e-5"])
    assert config.run_name == "seed=3" and config.seed == 42 and config.learning_rate == 1e-5


def test_without_a_recipe_model_or_data_the_default_is_taken(tmp_path):
    (tmp_path / "own.yaml").write_text("seed: 1\n")
    parser = RecipeParser((STAPOConfig, ModelConfig), prog="test")
    _, settings, _, _ = parser.read_argv(["num_generations=2"], str(tmp_path / "own.yaml"))
    assert settings == {"seed": 1, "num_generations": 2}
    for argv in (["--model_name_or_path", "a"], ["--model_name_or_path=a"], ["model_name_or_path=a"]):
        assert "seed" not in parser.read_argv(argv, str(tmp_path / "own.yaml"))[1]


def test_errors_are_one_line_without_the_usage(capsys):
    cases = [
        (["--recipe", "grpoo"], "There is no recipe 'grpoo': did you mean 'grpo'?"),
        (["learning_rat=1"], "there is no setting 'learning_rat': did you mean 'learning_rate'?"),
        (["--learning-rat", "1"], "there is no setting 'learning-rat': did you mean 'learning_rate'?"),
        (["num_generations=8.5"], "invalid int value: '8.5'"),
        (["fp16=maybe"], "Truthy value expected"),
        (["s2t_selection=lowest"], "invalid choice: 'lowest'"),
        (["num_generations=[8]"], "invalid int value: '[8]'"),
        (["num_generations=null"], ""),
        (["eval_strategy=null"], "eval_strategy cannot be null."),
        (["s2t_entropy_quantile=75"], "(q) must be a number in [0, 1]"),
        (["--recipe", "a", "--config", "b"], "not allowed with"),
        (["--num_processes", "2"], "is for --dry_run"),
        (["--dry_run", "--num_processes", "0"], "at least 1"),
        (["lora_target_modules=[q"], "the value of lora_target_modules is not plain YAML"),
        (["lora_target_modules=[!!python/name:os.system '']"], "the value of lora_target_modules is not plain YAML"),
        (["stray"], "there is no setting 'stray'"),
        (["about={summary: mine}"], "there is no setting 'about'"),
        (["env={A: 1}"], "there is no setting 'env'"),
    ]
    assert_refused([([*CPU, *argv], sentence) for argv, sentence in cases], capsys)


def test_a_file_with_the_wrong_type_is_refused(tmp_path, capsys):
    lines = {
        "num_generations: [8]": "num_generations cannot be [8].",
        "learning_rate: 2026-12-01": "learning_rate cannot be datetime.date(2026, 12, 1).",
        "lora_target_modules: [[a], b]": "lora_target_modules cannot be [['a'], 'b'].",
        "model_init_kwargs: [a]": "model_init_kwargs cannot be ['a'].",
        "env: 3": "`env` must be a mapping, got 3.",
        "learning_rat: 1": "there is no setting 'learning_rat': did you mean 'learning_rate'?",
    }
    cases = []
    for index, (line, sentence) in enumerate(lines.items()):
        (tmp_path / f"{index}.yaml").write_text(line)
        cases.append((["--config", str(tmp_path / f"{index}.yaml"), *CPU], f"test: {sentence}"))
    assert_refused(cases, capsys)


def test_env_of_a_file_is_set_as_by_trl(tmp_path, monkeypatch):
    monkeypatch.setenv("OWN_VARIABLE", "0")
    (tmp_path / "own.yaml").write_text("env: {OWN_VARIABLE: 7}\n")
    parse(["--config", str(tmp_path / "own.yaml"), *CPU])
    assert os.environ["OWN_VARIABLE"] == "7"
