import math

import pytest

from stapo_trl.cli.experiment.settings import METHODS, load_experiment
from stapo_trl.cli.recipes import load_recipe


def test_methods_differ_in_what_their_recipes_say_and_in_nothing_else(tmp_path):
    expected = {
        "grpo": {"s2t_entropy_quantile": 0.0, "loss_type": "grpo", "epsilon_high": 0.2},
        "justrl": {"s2t_entropy_quantile": 0.0},
        "justrl-fullmask": {"s2t_entropy_quantile": 1.0},
        "stapo": {},
        "20-entropy": {"token_rule": "top_entropy"},
        "stare": {"token_rule": "stare"},
        "clip_cov": {"token_rule": "clip_cov"},
        "low_probability": {"token_rule": "low_probability"},
        "entropy_driven": {"token_rule": "entropy_driven"},
        "entropy_shaping": {"token_rule": "entropy_shaping"},
        "kl_cov": {"token_rule": "kl_cov", "epsilon": 1.0, "epsilon_high": math.inf},
        "ce_gppo": {"token_rule": "ce_gppo", "epsilon": 1.0, "epsilon_high": math.inf},
        "aspo": {"token_rule": "aspo", "epsilon": 1.0, "epsilon_high": math.inf},
        "dppo": {"token_rule": "dppo", "loss_type": "cispo", "epsilon_high": 20.0},
        "ablation-random": {"s2t_selection": "random"},
        "ablation-high-entropy": {"s2t_selection": "high_entropy"},
    }
    assert list(expected.keys() ^ METHODS) == []
    for scale in ("cpu", "gpu"):
        experiment = load_experiment(scale, ["bf16=false", "use_cpu=true"])
        stapo = experiment.get_config("stapo", 3, tmp_path).to_dict()
        configs = {method: experiment.get_config(method, 3, tmp_path).to_dict() for method in expected}
        assert expected == {
            method: {name: value for name, value in config.items() if stapo[name] != value}
            for method, config in configs.items()
        }


def test_stapo_has_the_thresholds_of_the_paper(tmp_path):
    config, paper = load_experiment("cpu").get_config("stapo", 0, tmp_path), load_recipe("qwen3-1.7b-stapo")
    for name in ("s2t_prob_threshold", "s2t_entropy_quantile", "epsilon", "epsilon_high", "loss_type", "beta"):
        assert getattr(config, name) == paper.get(name, getattr(config, name))
    assert (config.s2t_prob_threshold, config.s2t_entropy_quantile) == (0.002, 0.75)


def test_a_seed_has_one_warm_start_and_one_seed_for_all_methods(tmp_path):
    experiment = load_experiment("cpu")
    assert experiment.get_warm_start(1) != experiment.get_warm_start(2)
    assert {experiment.get_config(method, 2, tmp_path).seed for method in METHODS} == {2}


def test_overrides_reach_the_training_the_warm_start_and_the_measurements():
    experiment = load_experiment("cpu", ["max_steps=8", "warm_start.max_steps=9", "heldout_every=2"], num_seeds=2)
    assert experiment.training["max_steps"] == 8 and experiment.warm_start["max_steps"] == 9
    assert experiment.heldout_every == 2 and experiment.num_seeds == 2


def test_overrides_have_the_types_of_their_fields():
    overrides = ["learning_rate=1e-3", "bf16=false", "lr_scheduler_kwargs={a: 1}", "warm_start.noise_rate=1e-2"]
    experiment = load_experiment("cpu", overrides)
    assert {name: experiment.training[name] for name in ("learning_rate", "bf16", "lr_scheduler_kwargs")} == {
        "learning_rate": 0.001,
        "bf16": False,
        "lr_scheduler_kwargs": {"a": 1},
    }
    assert experiment.warm_start["noise_rate"] == 0.01


def test_what_is_unknown_is_refused_with_the_closest_name():
    cases = [
        (["max_step=8"], {}, "no field of STAPOConfig 'max_step': did you mean 'max_steps'"),
        (["seed=1"], {}, "no field of STAPOConfig 'seed'"),
        (["warm_start.seed=1"], {}, "no field of the warm start 'seed'"),
        (["max_steps"], {}, "write name=value"),
        ([], {"num_seeds": 0}, "needs a method and a seed"),
        ([], {"methods": ["ppo"]}, "no method 'ppo'"),
    ]
    for overrides, changes, message in cases:
        with pytest.raises(ValueError, match=message):
            load_experiment("cpu", overrides, **changes)


def test_a_value_of_another_type_is_refused(capsys):
    with pytest.raises(SystemExit):
        load_experiment("cpu", ["max_steps=many"])
    assert "stapo experiment: argument --max_steps" in capsys.readouterr().err
