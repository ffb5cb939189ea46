"""Every rule in the trainer: the official loss, off is GRPO, the same edit however a step is cut."""

import pytest
import torch
from toys import SHAPES, make_inputs, record_steps, run_step, weights
from trl import GRPOConfig, GRPOTrainer

from stapo_trl import STAPOTrainer
from stapo_trl.rules import make_rule


UNCLIPPED = {"epsilon": 1.0, "epsilon_high": float("inf")}
# Parameters with which a rule has something to do on the toy, whose policy is nearly uniform over 25 tokens
CASES = {
    "STARE O1": ("stare", {"target_entropy": 9.0}, {}),
    "STARE C2": ("stare", {"variant": "C2", "share": 0.3, "target_entropy": 9.0}, {}),
    "80/20": ("top_entropy", {}, {}),
    "80/20 of all": ("top_entropy", {"divide_by_all": True}, {}),
}
OFF = {
    "STARE": ("stare", {"target_entropy": 0.0}, {}),
    "80/20": ("top_entropy", {"share": 1.0}, {}),
    "80/20 of all": ("top_entropy", {"share": 1.0, "divide_by_all": True}, {}),
}


@pytest.fixture
def make(make_trainer):
    """A trainer whose configuration names the rule of a case."""

    def make_with(case, **settings):
        name, parameters, needed = case
        trainer = make_trainer(token_rule=name, token_rule_kwargs=parameters, **needed, **settings)
        assert trainer.token_rule == make_rule(name, parameters)
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


OFFICIAL = {"stare": stare, "top_entropy": top_entropy}


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
        wide |= {"logps": logps, "entropies": entropies.detach(), "old_logps": batch["old_per_token_logps"]}
        columns.append({name: value.expand_as(logps)[mask] for name, value in wide.items()})

    losses = run_step(trainer, monkeypatch, micro_batches)
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
    for name, case in OFF.items():
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


def find_edits(steps) -> dict:
    """For each token of [`record_steps`] whether it is kept, and its advantage."""
    edits = {}
    for number, (inputs, _, step) in enumerate(steps):
        for batch, keep, edited in zip(inputs, step.edit.keep_masks, step.edit.advantages, strict=True):
            advantages = batch["advantages"][:, None].expand(keep.shape) if edited is None else edited
            for row, position in batch["completion_mask"].nonzero().tolist():
                prompt = tuple(batch["prompt_ids"][row][batch["prompt_mask"][row].bool()].tolist())
                completion = tuple(batch["completion_ids"][row][: position + 1].tolist())
                key = (number, prompt, completion, batch["advantages"][row].item())
                edits[key] = bool(keep[row, position]), advantages[row, position].item()
    return edits


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
