"""Every rule in the trainer: the official loss, off is GRPO, the same edit however a step is cut."""

import pytest
import torch
from token_window import make_window
from toys import SHAPES, find_edits, make_inputs, record_steps, run_step, weights
from trl import GRPOConfig, GRPOTrainer

from stapo_trl import STAPOTrainer
from stapo_trl.observe import recorder
from stapo_trl.observe.token_log import read_token_log
from stapo_trl.rules import make_rule
from stapo_trl.rules.selection import token_keys
from stapo_trl.rules.tokens import gather_one
from stapo_trl.trainer.optimizer_step import watch


UNCLIPPED = {"epsilon": 1.0, "epsilon_high": float("inf")}
CISPO = {"loss_type": "cispo", "epsilon_high": 1.2}
# Parameters with which a rule has something to do on the toy, whose policy is nearly uniform over 25 tokens
CASES = {
    "STARE O1": ("stare", {"target_entropy": 9.0}, {}),
    "STARE C2": ("stare", {"variant": "C2", "share": 0.3, "target_entropy": 9.0}, {}),
    "80/20": ("top_entropy", {}, {}),
    "80/20 of all": ("top_entropy", {"divide_by_all": True}, {}),
    "Clip-Cov": ("clip_cov", {"share": 0.2, "lower": 0.02, "upper": 9.0}, {}),
    "AR": ("low_probability", {"alpha": 0.3}, {}),
    "EDA": ("entropy_driven", {}, {}),
    "entropy shaping": ("entropy_shaping", {"alpha": 0.1}, {}),
    "KL-Cov": ("kl_cov", {"share": 0.2}, UNCLIPPED),
    "CE-GPPO": ("ce_gppo", {"clip_low": 0.01, "clip_high": 0.01}, UNCLIPPED),
    "ASPO": ("aspo", {"clip": 0.01, "clip_high_entropy": 0.02}, UNCLIPPED),
    "DPPO-TV": ("dppo", {"threshold": 0.0005}, CISPO),
    "DPPO-KL": ("dppo", {"divergence": "kl", "threshold": 1e-6}, CISPO),
}
OFF = {
    "STARE": ("stare", {"target_entropy": 0.0}, {}),
    "80/20": ("top_entropy", {"share": 1.0}, {}),
    "80/20 of all": ("top_entropy", {"share": 1.0, "divide_by_all": True}, {}),
    "Clip-Cov": ("clip_cov", {"lower": 98.0, "upper": 99.0}, {}),
    "AR": ("low_probability", {"alpha": 0.0}, {}),
    "entropy shaping": ("entropy_shaping", {"alpha": 0.0}, {}),
    "KL-Cov": ("kl_cov", {"coef": 0.0}, UNCLIPPED),
    "DPPO": ("dppo", {"threshold": 1.0}, CISPO),
}
# In steps of the policy that sampled, where the ratio is 1
OFF_ON_POLICY = {
    "KL-Cov": ("kl_cov", {}, UNCLIPPED),
    "CE-GPPO": ("ce_gppo", {}, UNCLIPPED),
    "ASPO": ("aspo", {}, UNCLIPPED),
    "DPPO": ("dppo", {"threshold": 0.0}, CISPO),
}


@pytest.fixture
def make(make_trainer):
    """A trainer whose configuration names the rule of a case."""

    def make_with(case, **settings):
        name, parameters, needed = case
        trainer = make_trainer(token_rule=name, token_rule_kwargs=parameters, **needed, **settings)
        assert type(trainer.token_rule) is type(make_rule(name, parameters))
        return trainer

    return make_with


# ---- The official losses, written plainly -----------------------------------------------------------------------------


def ratio(x):
    return (x["logps"] - x["old_logps"]).exp()


def clipped(x):
    r, a = ratio(x), x["advantages"]
    return -torch.minimum(r * a, r.clamp(0.8, 1.28) * a)


def largest(values, share):
    count = min(max(int(share * len(values) + 0.999999), 1), len(values))
    return values >= values.sort(descending=True).values[count - 1]


def stare(x, parameters):
    weight = torch.ones(len(x["logps"]))
    sides = [(x["advantages"] > 0, 1.1)] + [(x["advantages"] < 0, 0.9)] * (parameters.get("variant") == "C2")
    for side, factor in sides:
        surprisals = -x["logps"].detach()[side]
        weight[side] = torch.where(largest(surprisals, parameters.get("share", 0.1)), factor, 1.0)
    return (weight * clipped(x)).mean()


def top_entropy(x, parameters):
    selected = largest(x["entropies"], 0.2)
    loss = (selected * clipped(x)).sum()
    return loss / (len(selected) if parameters.get("divide_by_all") else selected.sum())


def covariances(x):
    logps, advantages = x["logps"].detach(), x["advantages"]
    return (advantages - advantages.mean()) * (logps - logps.mean())


def clip_cov(x, parameters):
    losses, r, a, covs = clipped(x), ratio(x), x["advantages"], covariances(x)
    is_clipped = -r.clamp(0.8, 1.28) * a > -r * a
    band = ((covs > parameters["lower"]) & (covs < parameters["upper"]) & ~is_clipped).nonzero().flatten()
    chosen = band[x["keys"][band].argsort()][: max(1, int(parameters["share"] * len(losses)))]
    assert 0 < len(chosen) < len(band)
    return losses.index_fill(0, chosen, 0.0).mean()


def low_probability(x, parameters):
    return ((parameters["alpha"] * x["old_logps"].exp() + 1 - parameters["alpha"]) * clipped(x)).mean()


def entropy_driven(x, parameters):
    means = {i: x["entropies"][x["responses"] == i].mean() for i in x["responses"].tolist()}
    average = sum(means.values()) / len(means)
    return clipped(
        x | {"advantages": x["advantages"] * torch.stack([average / means[i] for i in x["responses"].tolist()])}
    ).mean()


def entropy_shaping(x, parameters):
    a = x["advantages"]
    return clipped(x | {"advantages": a + torch.minimum(parameters["alpha"] * x["entropies"], a.abs() / 2)}).mean()


def kl_cov(x, parameters):
    losses, covs = -ratio(x) * x["advantages"], covariances(x)
    chosen = covs.topk(max(1, int(parameters["share"] * len(covs)))).indices
    penalties = torch.zeros_like(losses).index_add(0, chosen, (x["logps"] - x["old_logps"])[chosen].abs())
    return (losses + penalties).mean()


def ce_gppo(x, parameters):
    r, a, low, high = ratio(x), x["advantages"], 1 - parameters["clip_low"], 1 + parameters["clip_high"]
    below, above = (a < 0) & (r < low), (a > 0) & (r > high)
    assert below.any() and above.any()
    bounded = torch.where(below, 0.5 * low * r / r.detach(), torch.where(above, 1.0 * high * r / r.detach(), r))
    return -(bounded * a).mean()


def aspo(x, parameters):
    losses, r = [], ratio(x).detach()
    for i in range(len(r)):
        entropies = x["entropies"][x["responses"] == x["responses"][i]]
        uncertain = x["entropies"][i] > entropies.quantile(0.8)
        e, a = parameters["clip_high_entropy" if uncertain else "clip"], x["advantages"][i]
        g = 0 if (a > 0 and r[i] > 1 + e) or (a < 0 and r[i] < 1 - e) else min(1 / r[i] if a > 0 else r[i], 3.0)
        losses.append(-g * a * x["logps"][i])
    return sum(losses) / len(losses)


def dppo(x, parameters):
    p, q, a = x["logps"].detach().exp(), x["old_logps"].exp(), x["advantages"]
    if parameters.get("divergence") == "kl":
        distance = q * (q / p).log() + (1 - q) * ((1 - q) / (1 - p)).log()
    else:
        distance = (p - q).abs()
    outside = (distance > parameters["threshold"]) & torch.where(a > 0, p > q, p < q)
    assert 0 < outside.sum() < len(p)
    return -(~outside * ratio(x).detach().clamp(max=1.2) * a * x["logps"]).mean()


OFFICIAL = {
    "stare": stare,
    "top_entropy": top_entropy,
    "clip_cov": clip_cov,
    "low_probability": low_probability,
    "entropy_driven": entropy_driven,
    "entropy_shaping": entropy_shaping,
    "kl_cov": kl_cov,
    "ce_gppo": ce_gppo,
    "aspo": aspo,
    "dppo": dppo,
}


@pytest.fixture
def float64_default():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def scores(model, batch):
    """Log-probs and entropies (B, T), differentiable."""
    ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], 1)
    mask = torch.cat([batch["prompt_mask"], batch["completion_mask"]], 1)
    length = batch["completion_ids"].size(1)
    logps = model(input_ids=ids, attention_mask=mask).logits[:, -length - 1 : -1].log_softmax(-1)
    return logps.gather(-1, ids[:, -length:, None]).squeeze(-1), -(logps.exp() * logps).sum(-1)


@pytest.mark.parametrize("num_micro", [1, 3])
@pytest.mark.parametrize("case", CASES)
def test_the_gradient_is_that_of_the_official_loss(make, monkeypatch, float64_default, case, num_micro):
    trainer = make(
        CASES[case],
        per_device_train_batch_size=4,
        gradient_accumulation_steps=num_micro,
        steps_per_generation=num_micro,
    )
    trainer.model.double()

    def forward(self, model, input_ids, attention_mask, logits_to_keep, *args, **kwargs):
        # TRL's own has a float32 head
        batch = {"prompt_ids": input_ids[:, :-logits_to_keep], "prompt_mask": attention_mask[:, :-logits_to_keep]}
        batch |= {"completion_ids": input_ids[:, -logits_to_keep:]}
        return *scores(model, batch | {"completion_mask": attention_mask[:, -logits_to_keep:]}), None

    monkeypatch.setattr(GRPOTrainer, "_get_per_token_logps_and_entropies", forward)
    micro_batches = [make_inputs(4, 6, seed) for seed in range(num_micro)]
    micro_batches[0]["tool_mask"] = (torch.rand(4, 6, generator=torch.Generator().manual_seed(9)) < 0.8).long()
    masks = [(batch["completion_mask"] * batch.get("tool_mask", 1)).bool() for batch in micro_batches]
    columns = []
    for index, (batch, mask) in enumerate(zip(micro_batches, masks, strict=True)):
        logps, entropies = scores(trainer.model, batch)
        noise = torch.randn(4, 6, generator=torch.Generator().manual_seed(index), dtype=torch.float64)
        batch["old_per_token_logps"] = logps.detach() + 0.4 * noise
        batch["num_items_in_batch"] = sum(map(torch.sum, masks))
        batch["advantages"] = torch.tensor([1.0, -0.5, 0.7, -1.2])
        wide = {"advantages": batch["advantages"][:, None], "responses": torch.arange(4)[:, None] + 4 * index}
        wide["keys"] = token_keys(batch["completion_ids"], trainer.args.seed)
        wide |= {"logps": logps, "entropies": entropies.detach(), "old_logps": batch["old_per_token_logps"]}
        columns.append({name: value.expand_as(logps)[mask] for name, value in wide.items()})

    losses = run_step(trainer, micro_batches)
    found = {name: parameter.grad.clone() for name, parameter in trainer.model.named_parameters()}
    trainer.model.zero_grad()
    name, parameters, _ = CASES[case]
    OFFICIAL[name]({name: torch.cat([x[name] for x in columns]) for name in columns[0]}, parameters).backward()
    assert all(loss.isfinite() for loss in losses)
    for name, parameter in trainer.model.named_parameters():
        torch.testing.assert_close(found[name], parameter.grad, rtol=1e-9, atol=1e-12)

    # It is another gradient than GRPO's
    metrics = trainer._metrics["train"]
    assert metrics.get("s2t/changed_share", [0])[0] + metrics["s2t/silenced_share"][0] > 0


# ---- Off, cuts, iterations ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", SHAPES)
def test_off_is_grpo_bit_for_bit(make, make_trainer, shape):
    expected, failures = {}, []
    cases = list(OFF.items()) + list(OFF_ON_POLICY.items() if shape in ("one micro-batch", "accumulation") else [])
    for name, case in cases:
        trainer = make(case, **SHAPES[shape])
        trainer.train()
        settings = case[2]
        if str(settings) not in expected:
            grpo = make_trainer(GRPOTrainer, GRPOConfig, **SHAPES[shape], **settings)
            grpo.train()
            expected[str(settings)] = weights(grpo)
        if any(not torch.equal(value, weights(trainer)[key]) for key, value in expected[str(settings)].items()):
            failures.append(name)
    assert not failures


@pytest.mark.parametrize("case", CASES)
def test_a_step_is_edited_and_taken_alike_however_it_is_cut(make, case):
    results = []
    for rows, accumulation in [(8, 1), (4, 2), (2, 4), (1, 8)]:
        trainer = make(
            CASES[case],
            per_device_train_batch_size=rows,
            gradient_accumulation_steps=accumulation,
            steps_per_generation=2 * accumulation,  # the policy has moved in the second step
            learning_rate=0.5,
            optim="sgd",
        )
        steps = record_steps(trainer)
        trainer.train()
        results.append((find_edits(steps), weights(trainer)))
    expected, weight = results[0]
    assert any(not keep or advantage != key[-1] for key, (keep, advantage) in expected.items())
    for edits, other in results[1:]:
        assert {key: keep for key, (keep, _) in edits.items()} == {key: keep for key, (keep, _) in expected.items()}
        for key, (_, advantage) in expected.items():
            assert edits[key][1] == pytest.approx(advantage, rel=1e-4, abs=1e-6)
        torch.testing.assert_close(other, weight, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("case", CASES)
def test_an_edit_acts_once_in_each_of_two_iterations(make, case):
    trainer = make(CASES[case], **SHAPES["two steps per generation, two iterations"], learning_rate=0.05)
    steps = record_steps(trainer)
    trainer.train()
    assert len(steps) == 4
    for inputs, scored, step in steps:
        for batch, (logps, _), seen in zip(inputs, scored, step.record.seen, strict=True):
            assert batch["advantages"].dim() == 1  # TRL's own batch is as it was
            mask = batch["completion_mask"].bool()
            torch.testing.assert_close(logps[mask], seen[0][mask], rtol=1e-4, atol=1e-4)
    first, second = ([batch["advantages"] for batch in inputs] for inputs, *_ in (steps[0], steps[2]))
    torch.testing.assert_close(torch.cat(first).sort().values, torch.cat(second).sort().values)


# ---- Settings, metrics, files -------------------------------------------------------------------------------------------


def test_a_rule_of_the_user_goes_over_the_one_that_the_configuration_names(make_trainer):
    named = make_trainer(token_rule="stare", token_rule_kwargs={"share": 0.2})
    assert named.token_rule == make_rule("stare", {"share": 0.2})
    own = STAPOTrainer(
        model=named.model,
        reward_funcs=named.reward_funcs,
        args=named.args,
        train_dataset=named.train_dataset,
        processing_class=named.processing_class,
        token_rule=make_rule("top_entropy"),
    )
    assert own.token_rule == make_rule("top_entropy")


def test_a_rule_without_the_loss_that_it_needs_is_refused_with_what_to_set(make_trainer):
    unclipped = "needs loss_type='dapo', epsilon=1.0, epsilon_high=inf, got"
    failures = []
    for name, settings, message in [
        ("kl_cov", {}, f"KLCov {unclipped} loss_type='dapo', epsilon=0.2, epsilon_high=0.28"),
        ("ce_gppo", {"epsilon": 1.0}, f"CEGPPO {unclipped}"),
        ("aspo", UNCLIPPED | {"loss_type": "sapo"}, f"ASPO {unclipped} loss_type='sapo'"),
        ("aspo", UNCLIPPED | {"delta": 4.0}, "ASPO needs delta=None, got delta=4.0"),
        (
            "ce_gppo",
            UNCLIPPED | {"importance_sampling_level": "sequence"},
            "needs importance_sampling_level='token', got importance_sampling_level='sequence'",
        ),
        ("kl_cov", UNCLIPPED | {"off_policy_mask_threshold": 0.1}, "KLCov needs off_policy_mask_threshold=None"),
        ("dppo", {}, "DPPO needs loss_type='cispo', epsilon_high=20.0, got loss_type='dapo', epsilon_high=0.28"),
        ("dppo", {"loss_type": "cispo"}, "DPPO needs loss_type='cispo', epsilon_high=20.0"),
        ("top_entropy", {"top_entropy_quantile": 0.5}, "TopEntropy needs top_entropy_quantile=1.0"),
    ]:
        for named in (True, False):  # in the configuration, or as an object
            with pytest.raises(ValueError) as caught:
                make_trainer(token_rule=name if named else make_rule(name), **settings)
            if message not in str(caught.value):
                failures.append((message, str(caught.value)))
    assert not failures
    make_trainer(token_rule="ce_gppo", **UNCLIPPED, off_policy_mask_threshold=0.1)
    make_trainer(token_rule="clip_cov", off_policy_mask_threshold=0.1)


def test_clip_cov_leaves_alone_what_the_loss_clips(make_trainer):
    rule = make_trainer(token_rule="clip_cov", epsilon=0.1, epsilon_high=0.3).token_rule
    assert (rule.epsilon, rule.epsilon_high) == (0.1, 0.3)
    rule = make_trainer(token_rule="clip_cov", epsilon_high=None, token_rule_kwargs={"epsilon": 0.4}).token_rule
    assert (rule.epsilon, rule.epsilon_high) == (0.4, 0.2)


# ---- What is logged -----------------------------------------------------------------------------------------------------


def test_the_token_log_shows_what_became_of_the_advantage_and_the_metrics_how_often(make_trainer):
    trainer = make_trainer(
        token_rule="stare", token_rule_kwargs={"target_entropy": 9.0, "share": 0.3}, token_stats_steps=1
    )
    steps = record_steps(trainer)
    trainer.train()
    log = read_token_log(trainer.args.output_dir).to_pandas()
    positive = log.advantage > 0
    assert set((log.edited_advantage / log.advantage)[positive].astype(float).round(3)) == {1.0, 1.1}
    assert ((log.edited_advantage == log.advantage) | positive).all()
    num_changed = num_valid = 0
    for inputs, _, step in steps[:1]:
        for batch, edited in zip(inputs, step.edit.advantages, strict=True):
            num_changed += int((edited != batch["advantages"][:, None]).sum())
            num_valid += int(batch["completion_mask"].sum())
    first = trainer.state.log_history[0]
    assert first["s2t/changed_share"] == pytest.approx(num_changed / num_valid) and first["stare/gate"] == 1.0


def test_silenced_tokens_by_the_thousands_are_sampled_in_the_token_log(make_trainer, monkeypatch):
    monkeypatch.setattr(recorder, "SAMPLED_EDITS", 5)
    trainer = make_trainer(token_rule="top_entropy", token_rule_kwargs={"share": 0.1})
    trainer.train()
    log = read_token_log(trainer.args.output_dir).to_pandas()
    assert (log[log.silenced & ~log.candidate].groupby("step").size() == 5).all() and log.edited_advantage.isna().all()
    first = trainer.state.log_history[0]
    assert 0.8 < first["s2t/silenced_share"] < 0.95 and "s2t/changed_share" not in first
    assert first["s2t/silenced_entropy"] < first["s2t/entropy"]


def test_a_sibling_is_watched_with_stapos_candidates_and_quadrants():
    tokens, rule = make_window(), make_rule("entropy_shaping")
    edit, stapo = rule(tokens, gather_one), make_rule("s2t")(tokens, gather_one)
    watched = watch(rule, tokens, edit, gather_one)
    assert torch.equal(watched.candidates, stapo.candidates) and watched.advantages is edit.advantages
    # At q = 0 the 75 % quantile of the candidates' entropies parts the quadrants, as the paper's threshold does
    assert watched.quadrants == stapo.quadrants == (0.002, pytest.approx(1.325))
