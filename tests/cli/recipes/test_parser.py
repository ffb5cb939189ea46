"""The command line over a recipe."""

import os

import pytest
from trl import ModelConfig

from stapo_trl import STAPOConfig
from stapo_trl.cli.recipes.parser import RecipeParser


CPU = ["output_dir=run", "use_cpu=true", "bf16=false"]


def parse(words, default=None):
    parser = RecipeParser((STAPOConfig, ModelConfig), prog="test")
    options, settings, about, words = parser.read_words(words, default)
    return (*parser.parse(settings, words), options, about)


def test_words_go_over_overrides_and_overrides_over_the_recipe(tmp_path):
    recipe = tmp_path / "own.yaml"
    recipe.write_text(
        "learning_rate: 1e-5\nseed: 1\nnum_generations: 4\nlora_target_modules: [a, b]\nabout: {gpus: 2}\n"
    )
    words = ["--config", str(recipe), "seed=2", "num_generations=2", *CPU, "--num_generations", "8"]
    config, model, options, about = parse(words)
    assert (config.learning_rate, config.seed, config.num_generations) == (1e-5, 2, 8)
    assert model.lora_target_modules == ["a", "b"] and about == {"gpus": 2} and not options.dry_run


def test_overrides_have_the_types_of_their_fields():
    words = [
        "learning_rate=1e-5",
        "output_dir=010",
        "fp16=False",
        "lora_target_modules=[q, v]",
        "model_init_kwargs={a: 1}",
    ]
    config, model, *_ = parse([*CPU, *words, "vllm_max_model_length=null", "run_name=[a=b"])
    assert config.learning_rate == 1e-5 and config.output_dir == "010" and config.fp16 is False
    assert model.lora_target_modules == ["q", "v"] and config.model_init_kwargs == {"a": 1}
    assert config.vllm_max_model_length is None and config.run_name == "[a=b"


def test_the_value_of_an_option_is_no_override():
    config, *_ = parse([*CPU, "--run_name", "seed=3", "--report_to", "none", "learning_rate=1e-5"])
    assert config.run_name == "seed=3" and config.seed == 42 and config.learning_rate == 1e-5


def test_without_a_recipe_model_or_data_the_default_is_taken(tmp_path):
    (tmp_path / "own.yaml").write_text("seed: 1\n")
    parser = RecipeParser((STAPOConfig, ModelConfig), prog="test")
    assert parser.read_words(["num_generations=2"], str(tmp_path / "own.yaml"))[1] == {
        "seed": 1,
        "num_generations": "2",
    }
    for words in (["--model_name_or_path", "a"], ["--model_name_or_path=a"], ["model_name_or_path=a"]):
        assert "seed" not in parser.read_words(words, str(tmp_path / "own.yaml"))[1]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
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
        (["lora_target_modules=[q"], "the value of lora_target_modules is no plain YAML"),
        (["lora_target_modules=[!!python/name:os.system '']"], "the value of lora_target_modules is no plain YAML"),
        (["stray"], "there is no setting 'stray'"),
    ],
)
def test_errors_are_one_line_without_the_usage(words, sentence, capsys):
    with pytest.raises(SystemExit) as exit:
        parse([*CPU, *words])
    lines = capsys.readouterr().err.splitlines()
    assert exit.value.code == 2 and sentence in lines[-1] and not any("usage" in line for line in lines)


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("num_generations: [8]", "num_generations cannot be [8]."),
        ("learning_rate: 2026-12-01", "learning_rate cannot be datetime.date(2026, 12, 1)."),
        ("lora_target_modules: [[a], b]", "lora_target_modules cannot be [['a'], 'b']."),
        ("model_init_kwargs: [a]", "model_init_kwargs cannot be ['a']."),
        ("env: 3", "`env` must be a mapping, got 3."),
        ("learning_rat: 1", "there is no setting 'learning_rat': did you mean 'learning_rate'?"),
    ],
)
def test_a_file_with_the_wrong_type_is_refused(tmp_path, capsys, line, sentence):
    (tmp_path / "own.yaml").write_text(line)
    with pytest.raises(SystemExit) as exit:
        parse(["--config", str(tmp_path / "own.yaml"), *CPU])
    assert exit.value.code == 2 and f"test: {sentence}" in capsys.readouterr().err


def test_env_of_a_file_is_set_as_by_trl(tmp_path, monkeypatch):
    monkeypatch.setenv("OWN_VARIABLE", "0")
    (tmp_path / "own.yaml").write_text("env: {OWN_VARIABLE: 7}\n")
    parse(["--config", str(tmp_path / "own.yaml"), *CPU])
    assert os.environ["OWN_VARIABLE"] == "7"


def test_what_a_recipe_says_about_itself_is_no_setting(capsys):
    with pytest.raises(SystemExit):
        parse(["about={summary: mine}"])
    assert "there is no setting 'about'" in capsys.readouterr().err
