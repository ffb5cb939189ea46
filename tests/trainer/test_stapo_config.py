import dataclasses
import math

import pytest
from trl import GRPOConfig, TrlParser

from stapo_trl import STAPOConfig


def make(tmp_path, **fields):
    return STAPOConfig(str(tmp_path), use_cpu=True, bf16=False, **fields)


def test_defaults_are_the_papers(tmp_path):
    config = make(tmp_path)
    assert (config.s2t_prob_threshold, config.s2t_entropy_quantile) == (0.002, 0.75)
    assert (config.s2t_entropy_population, config.s2t_selection) == ("candidates", "low_entropy")
    assert (config.epsilon, config.epsilon_high, config.beta, config.loss_type) == (0.2, 0.28, 0.0, "dapo")
    assert (config.learning_rate, config.max_grad_norm, config.warmup_steps) == (1e-6, 1.0, 10)
    assert config.lr_scheduler_type == "constant_with_warmup"
    assert (config.temperature, config.top_p) == (1.0, 1.0)


def test_only_the_documented_defaults_differ_from_grpo():
    grpo = {field.name: field.default for field in dataclasses.fields(GRPOConfig)}
    differing = {field.name for field in dataclasses.fields(STAPOConfig) if grpo.get(field.name) != field.default}
    own = {"s2t_prob_threshold", "s2t_entropy_quantile", "s2t_entropy_population", "s2t_selection"}
    own |= {"log_tokens", "token_stats_steps", "on_nonfinite", "token_rule"}
    assert differing - own == {"epsilon_high", "warmup_steps", "lr_scheduler_type"}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("s2t_prob_threshold", -0.1),
        ("s2t_prob_threshold", 1.0),
        ("s2t_prob_threshold", math.nan),
        ("s2t_prob_threshold", "0.002"),
        ("s2t_entropy_quantile", -0.01),
        ("s2t_entropy_quantile", 75),
        ("s2t_entropy_quantile", math.inf),
        ("s2t_entropy_population", "candidate"),
        ("s2t_selection", "lowest"),
        ("token_stats_steps", -1),
        ("token_stats_steps", 0.5),
    ],
)
def test_values_out_of_range_are_refused_with_field_value_and_rule(tmp_path, field, value):
    with pytest.raises(ValueError, match=rf"`{field}`.* must be .*got {value!r}"):
        make(tmp_path, **{field: value})


@pytest.mark.parametrize("field", ["s2t_prob_threshold", "s2t_entropy_quantile"])
def test_the_ends_of_the_ranges_are_allowed(tmp_path, field):
    assert getattr(make(tmp_path, **{field: 0.0}), field) == 0.0
    assert make(tmp_path, s2t_entropy_quantile=1).s2t_entropy_quantile == 1


def test_a_token_rule_is_checked_with_its_parameters(tmp_path):
    assert make(tmp_path, token_rule="stare", token_rule_kwargs='{"share": 0.2}').token_rule_kwargs == {"share": 0.2}
    assert make(tmp_path, token_rule="stare", token_rule_kwargs={}).token_rule_kwargs is None
    failures = []
    for fields, message in [
        ({"token_rule": "star"}, "`token_rule` must be one of ['s2t', 'stare'"),
        ({"token_rule_kwargs": {"share": 0.2}}, "`token_rule_kwargs` must be empty with `token_rule='s2t'`"),
        ({"token_rule": "stare", "token_rule_kwargs": "share=0.2"}, "`token_rule_kwargs` must be a mapping"),
        ({"token_rule": "stare", "token_rule_kwargs": "[1]"}, "`token_rule_kwargs` must be a mapping"),
        (
            {"token_rule": "stare", "token_rule_kwargs": {"rho": 1}},
            "`token_rule_kwargs`: `rho` is no parameter of the rule 'stare': it has variant, share",
        ),
        (
            {"token_rule": "stare", "token_rule_kwargs": {"share": 2}},
            "`token_rule_kwargs`: `share` must be a number above 0 and at most 1, got 2.",
        ),
        ({"token_rule": "stare", "s2t_entropy_quantile": 0.0}, "`s2t_entropy_quantile` belongs to `token_rule='s2t'`"),
        ({"token_rule": "top_entropy", "top_entropy_quantile": 0.2}, "TopEntropy needs top_entropy_quantile=1.0, got"),
    ]:
        with pytest.raises(ValueError) as caught:
            make(tmp_path, **fields)
        if message not in str(caught.value):
            failures.append((message, str(caught.value)))
    assert not failures


def test_a_token_rule_parses_from_yaml_and_the_command_line(tmp_path):
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text("token_rule: stare\ntoken_rule_kwargs:\n  target_entropy: 0.5\nuse_cpu: true\nbf16: false\n")
    arguments = ["--config", str(recipe), "--output_dir", str(tmp_path)]
    for more, expected in (([], {"target_entropy": 0.5}), (["--token_rule_kwargs", '{"share": 0.2}'], {"share": 0.2})):
        (config,) = TrlParser(STAPOConfig).parse_args_and_config([*arguments, *more])
        assert (config.token_rule, config.token_rule_kwargs) == ("stare", expected)


def test_every_own_field_has_help_and_stands_in_the_docstring():
    for field in dataclasses.fields(STAPOConfig):
        if field.name.startswith(("s2t_", "token_rule")):
            assert field.metadata["help"] and f"{field.name} (`" in STAPOConfig.__doc__


def test_fields_parse_from_yaml_and_the_command_line_overrides_them(tmp_path):
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(
        "s2t_entropy_quantile: 0.9\ns2t_prob_threshold: 0.01\nlearning_rate: 1.0e-5\nuse_cpu: true\nbf16: false\n"
    )
    arguments = ["--config", str(recipe), "--s2t_prob_threshold", "0.004", "--output_dir", str(tmp_path)]
    (config,) = TrlParser(STAPOConfig).parse_args_and_config([*arguments, "--s2t_selection", "random"])
    assert (config.s2t_entropy_quantile, config.s2t_prob_threshold, config.learning_rate) == (0.9, 0.004, 1e-5)
    assert config.s2t_selection == "random"


def test_the_command_line_offers_the_choices(tmp_path, capsys):
    with pytest.raises(SystemExit):
        TrlParser(STAPOConfig).parse_args_and_config(["--output_dir", str(tmp_path), "--s2t_selection", "lowest"])
    assert "invalid choice" in capsys.readouterr().err


def test_a_learning_rate_that_is_not_finite_is_refused(make_trainer):
    for rate in (math.nan, math.inf, -math.inf):
        for config_class in (STAPOConfig, GRPOConfig):
            with pytest.raises(ValueError, match="`learning_rate` must be a finite number, got -?(nan|inf)"):
                make_trainer(config_class=config_class, learning_rate=rate)
