"""Every rule on one fixed window: its numbers, and what no rule may depend on."""

import dataclasses
import json
import re
from pathlib import Path

import pytest
import torch
from token_window import apply, apply_apart, make_window, select

import stapo_trl.rules as rules_package
from stapo_trl.rules import RULES, make_rule


# Name in the file of expected edits, rule, parameters; kept tokens, changed ones, sum of the kept advantages, the same
# weighted by the token's number from 1, and the clip loss of the kept (0.2, 0.2) divided by their number
ALL = list(range(23))
CASES = [
    ("stapo", "s2t", {}, 20, [1, 3, 9], -4.6, -63.1, 0.3037),
    ("twenty_entropy", "top_entropy", {}, 5, sorted({*ALL} - {7, 13, 16, 18, 20}), -1.9, -18.2, 0.865),
    (
        "twenty_entropy_all",
        "top_entropy",
        {"divide_by_all": True},
        23,
        sorted({*ALL} - {7, 13, 16, 18, 20}),
        -1.9,
        -18.2,
        0.188043478261,
    ),
    ("stare_off", "stare", {}, 23, [], -2.5, -51.9, 0.171260869565),
    ("stare_o1", "stare", {"target_entropy": 0.9}, 23, [9], -2.43, -51.2, 0.167760869565),
    (
        "stare_c2",
        "stare",
        {"variant": "C2", "target_entropy": 0.9, "share": 0.2},
        23,
        [1, 6, 9, 14, 22],
        -2.12,
        -48.18,
        0.155326086957,
    ),
    (
        "advantage_reweighting",
        "low_probability",
        {"alpha": 0.3},
        23,
        ALL,
        -2.402325889632,
        -46.895066191257,
        0.145723046554,
    ),
    ("clip_cov", "clip_cov", {"share": 0.1}, 23, [4, 10], -3.9, -63.1, 0.237913043478),
    ("eda", "entropy_driven", {}, 23, ALL, -4.272736357253, -85.875738267086, 0.233884011283),
    ("entropy_shaping", "entropy_shaping", {}, 23, ALL, 2.948, 17.168, -0.081423478261),
    ("kl_cov", "kl_cov", {"share": 0.1}, 23, [6, 17], -1.522988505747, -52.647126436782, None),
    ("ce_gppo", "ce_gppo", {}, 23, [1, 6, 17, 22], -2.039935160625, -46.289773062187, None),
    ("aspo", "aspo", {}, 23, [1, 2, 3, 4, 6, 9, 11, 17, 18, 20, 22], 9.166325867874, 162.284775811857, None),
    ("dppo_tv", "dppo", {}, 23, [4, 5, 17], -2.8, -65.0, None),
]
OFF = [
    ("s2t", {"entropy_quantile": 0.0}),
    ("top_entropy", {"share": 1.0}),
    ("top_entropy", {"share": 1.0, "divide_by_all": True}),
    ("stare", {"target_entropy": 0.0}),
    ("stare", {"positive_weight": 1.0, "target_entropy": 9.0}),
    ("clip_cov", {"lower": 98.0, "upper": 99.0}),
    ("low_probability", {"alpha": 0.0}),
    ("entropy_shaping", {"alpha": 0.0}),
    ("kl_cov", {"coef": 0.0}),
    ("dppo", {"threshold": 1.0}),
    ("dppo", {"divergence": "kl", "threshold": float("inf")}),
]
REFUSED = [
    ("top_entropy", {"share": 1.1}),
    ("top_entropy", {"share": -0.1}),
    ("top_entropy", {"share": 0}),
    ("top_entropy", {"share": "0.2"}),
    ("top_entropy", {"share": True}),
    ("top_entropy", {"share": float("nan")}),
    ("top_entropy", {"divide_by_all": "yes"}),
    ("stare", {"variant": "O2"}),
    ("stare", {"share": 2}),
    ("stare", {"positive_weight": 0.9}),
    ("stare", {"positive_weight": float("inf")}),
    ("stare", {"negative_weight": 1.1}),
    ("stare", {"negative_weight": 0.0}),
    ("stare", {"target_entropy": -1.0}),
    ("s2t", {"prob_threshold": 1.0}),
    ("clip_cov", {"share": 1.01}),
    ("clip_cov", {"lower": 5.0}),
    ("clip_cov", {"lower": float("nan")}),
    ("clip_cov", {"upper": "5"}),
    ("clip_cov", {"epsilon": -0.2}),
    ("low_probability", {"alpha": 1.1}),
    ("low_probability", {"alpha": -0.1}),
    ("entropy_shaping", {"alpha": -0.1}),
    ("entropy_shaping", {"kappa": 1.0}),
    ("kl_cov", {"share": 0.0}),
    ("kl_cov", {"share": 1.5}),
    ("kl_cov", {"coef": -1.0}),
    ("ce_gppo", {"beta1": -0.5}),
    ("ce_gppo", {"beta2": None}),
    ("ce_gppo", {"clip_low": 1.0}),
    ("ce_gppo", {"clip_high": -0.1}),
    ("aspo", {"clip": -0.1}),
    ("aspo", {"clip_high_entropy": -0.1}),
    ("aspo", {"entropy_quantile": 80}),
    ("aspo", {"cap": 0.5}),
    ("dppo", {"divergence": "js"}),
    ("dppo", {"threshold": -0.1}),
]
NAMES = [case[0] for case in CASES]


@pytest.fixture
def window():
    return make_window()


def rules():
    return [(name, make_rule(rule, parameters)) for name, rule, parameters, *_ in CASES]


def clip_loss(tokens, keep, advantages):
    ratios = (tokens.logps - tokens.old_logps).exp()
    loss = -torch.min(ratios * advantages, ratios.clamp(0.8, 1.2) * advantages)
    return (loss * keep).sum() / keep.sum()


@pytest.mark.parametrize(("_", "name", "parameters", "kept", "changed", "total", "weighted", "loss"), CASES, ids=NAMES)
def test_the_fixed_window_has_the_published_numbers(_, name, parameters, kept, changed, total, weighted, loss):
    for dtype, tolerance in ((torch.float64, 1e-9), (torch.float32, 1e-4)):
        tokens = make_window(dtype)
        keep, advantages = apply(make_rule(name, parameters), tokens)
        assert int(keep.sum()) == kept
        assert (~keep | (advantages != tokens.advantages)).nonzero().flatten().tolist() == changed
        left = (advantages * keep).double()
        assert abs(left.sum() - total) < tolerance
        assert abs((left * torch.arange(1, 24)).sum() - weighted) < 10 * tolerance
        if loss is not None:
            assert abs(clip_loss(tokens, keep, advantages) - loss) < tolerance


def test_without_a_rule_the_window_has_grpos_loss(window):
    assert abs(clip_loss(window, torch.ones(23), window.advantages) - 0.171260869565) < 1e-9


def test_every_token_is_edited_as_in_the_file_of_expected_edits(window):
    file = Path(__file__).parents[3] / "shared" / "cases" / "rules_window.json"
    if not file.is_file():
        pytest.skip("needs the shared data folder next to the checkout")
    expected_edits, failures = json.loads(file.read_text()), []
    for name, rule in rules():
        keep, advantages = apply(rule, window)
        expected = {key: torch.tensor(value, dtype=torch.float64) for key, value in expected_edits[name].items()}
        wanted = window.advantages * expected["multiplier"] + expected["offset"]
        if not torch.equal(keep, expected["keep"].bool()) or (advantages - wanted).abs().max() > 1e-9:
            failures.append(name)
    assert not failures


def cut(tokens, owners):
    """The window on several processes: `owners[i]` has response i."""
    owners = torch.tensor(owners)[tokens.responses]
    return [owners == rank for rank in range(int(owners.max()) + 1)]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_processes_find_together_what_one_finds_alone(dtype):
    # In the last but one the first process has no positive response, in the last the second has no token
    tokens, failures = make_window(dtype), []
    for name, rule in rules():
        expected = apply(rule, tokens)
        for owners in (
            [0, 0, 0, 1, 1, 1],
            [0, 1, 0, 1, 0, 1],
            [0, 1, 2, 0, 1, 2],
            [1, 0, 1, 0, 1, 0],
            [0, 0, 2, 2, 2, 2],
        ):
            masks = cut(tokens, owners)
            found = apply_apart(rule, [select(tokens, mask) for mask in masks])
            for mask, (keep, advantages) in zip(masks, found, strict=True):
                same = torch.allclose(advantages, expected[1][mask], rtol=1e-6, atol=1e-7)
                if not torch.equal(keep, expected[0][mask]) or not same:
                    failures.append((name, owners))
    assert not failures


def test_the_order_of_tokens_does_not_matter(window):
    order, failures = torch.randperm(23, generator=torch.Generator().manual_seed(1)), []
    for name, rule in rules():
        keep, advantages = apply(rule, window)
        shuffled_keep, shuffled = apply(rule, select(window, order))
        if not torch.equal(shuffled_keep, keep[order]) or (shuffled - advantages[order]).abs().max() > 1e-12:
            failures.append(name)
    assert not failures


def test_off_changes_nothing(window):
    found = {}
    for name, parameters in OFF:
        keep, advantages = apply(make_rule(name, parameters), window)
        found[name, str(parameters)] = bool(keep.all()) and torch.equal(advantages, window.advantages)
    assert all(found.values()), found


def test_no_token_at_all_is_no_error():
    nothing = select(make_window(), torch.zeros(23, dtype=torch.bool))
    for _, rule in rules():
        keep, advantages = apply(rule, nothing)
        assert len(keep) == len(advantages) == 0


def test_advantages_of_rounding_size_are_no_advantages(window):
    tokens = window._replace(advantages=torch.full((23,), 2.0**-21, dtype=torch.float64))
    for name, rule in rules():
        assert (apply(rule, tokens)[1] - tokens.advantages).abs().max() < 1e-6, name


def test_a_step_without_any_advantage_stays_one(window):
    tokens = window._replace(advantages=torch.zeros(23, dtype=torch.float64))
    for name, rule in rules():
        assert (apply(rule, tokens)[1] == 0).all(), name


def test_metrics_are_numbers_under_the_name_of_the_rule(window):
    for name, rule in [(name, make_rule(name)) for name in RULES]:
        metrics = rule(window, lambda values: (values, slice(0, len(values)))).metrics
        assert all(key.startswith(f"{name}/") and type(value) is float for key, value in metrics.items()), metrics


def test_values_out_of_range_are_refused_by_name_and_the_parameters_listed():
    for name, parameters in REFUSED:
        ((parameter, value),) = parameters.items()
        with pytest.raises(ValueError) as caught:
            make_rule(name, parameters)
        assert f"`{parameter}`" in str(caught.value) and f"got {value!r}" in str(caught.value), caught.value
        known = [field.name for field in dataclasses.fields(make_rule(name))]
        assert f"Rule '{name}': it has {', '.join(known)}." in str(caught.value)


def test_unknown_rules_and_parameters_are_refused_with_those_that_there_are():
    with pytest.raises(ValueError, match="no token rule 'star'; there are s2t, stare"):
        make_rule("star")
    with pytest.raises(ValueError, match="`weight` is no parameter of the rule 'stare': it has variant, share"):
        make_rule("stare", {"weight": 1.2})


def test_every_rule_is_frozen_hashable_and_made_of_plain_values():
    for name in RULES:
        rule = make_rule(name)
        assert hash(rule) == hash(make_rule(name))
        assert make_rule(name, json.loads(json.dumps(dataclasses.asdict(rule)))) == rule


def test_the_table_of_rules_lists_each_with_its_parameters():
    rows = re.findall(r"^\| `(\w+)` \|(.*)\|$", (Path(rules_package.__file__).parent / "README.md").read_text(), re.M)
    assert [name for name, _ in rows] == ["token_rule", *RULES]
    for name, row in rows[2:]:
        fields = [field.name for field in dataclasses.fields(make_rule(name))]
        # The clip range of Clip-Cov is the loss's
        assert not [field for field in fields if not field.startswith("epsilon") and f"{field} " not in row], name
