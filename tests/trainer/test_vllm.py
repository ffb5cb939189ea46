"""The paths through vLLM, with a stand-in for TRL's generation object that returns recorded completions."""

import types
import zlib

import pytest
import torch
from toys import make_inputs, reference_keep_mask, run_step, score, weights
from trl import GRPOConfig, GRPOTrainer

from stapo_trl.arithmetic.warm_start import VOCABULARY


class RecordedGeneration:
    """Completions that depend on the prompt and its copy; log-probs of a sampler that is not quite the policy."""

    noise = 0.3  # nats; NaN stands for log-probs that vLLM could not give

    def __init__(self, **settings):
        self.settings, self.syncs = settings, 0
        self.vllm_client = types.SimpleNamespace(
            get_server_info=lambda: {"model_config": {"logprobs_mode": "processed_logprobs"}}
        )

    def sync_weights(self):
        self.syncs += 1

    def generate(self, prompts, images, num_generations, profiler):
        completions, logprobs = [], []
        for copy, prompt in enumerate(prompts):
            generator = torch.Generator().manual_seed(zlib.crc32(bytes(prompt)) + copy % num_generations)
            length = int(torch.randint(3, 11, (1,), generator=generator))
            completions.append(torch.randint(2, len(VOCABULARY), (length,), generator=generator).tolist() + [1])
            noise = self.noise * torch.randn(length + 1, generator=generator)
            logprobs.append(
                [[float(value)] for value in noise - 3.2]
            )  # about ln(1/25), what an untrained policy gives
        return prompts, completions, logprobs, None


@pytest.fixture
def make_vllm_trainer(make_trainer, monkeypatch):
    def make(trainer_class=None, noise=0.3, **settings):
        stub = type("Recorded", (RecordedGeneration,), {"noise": noise})
        monkeypatch.setattr("trl.trainer.grpo_trainer.VLLMGeneration", stub)
        classes = {"trainer_class": GRPOTrainer, "config_class": GRPOConfig} if trainer_class else {}
        return make_trainer(**classes, use_vllm=True, temperature=0.8, **settings)

    return make


@pytest.mark.parametrize("mode", ["colocate", "server"])
@pytest.mark.parametrize("accumulation", [1, 4])
def test_the_mask_is_that_of_the_trainers_own_forward_at_the_sampling_temperature(
    make_vllm_trainer, mode, accumulation
):
    trainer = make_vllm_trainer(
        vllm_mode=mode, per_device_train_batch_size=8 // accumulation, gradient_accumulation_steps=accumulation
    )
    comparisons, edit_step = [], trainer._edit_step

    def recorded(inputs, scores, rng_states):
        step = edit_step(inputs, scores, rng_states)
        with torch.no_grad():
            logps, entropies = [], []
            for batch in inputs:
                ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], dim=1)
                mask = torch.cat([batch["prompt_mask"], batch["completion_mask"]], dim=1)
                length = batch["completion_ids"].size(1)
                full = (trainer.model(ids, attention_mask=mask).logits[:, -length - 1 : -1] / 0.8).log_softmax(-1)
                logps.append(full.gather(2, batch["completion_ids"].unsqueeze(2)).squeeze(2))
                entropies.append(-(full.exp() * full).sum(-1))
        whole = {name: torch.cat([batch[name] for batch in inputs]) for name in ("advantages", "completion_mask")}
        expected = reference_keep_mask(
            torch.cat(logps), torch.cat(entropies), whole["advantages"], whole["completion_mask"]
        )
        comparisons.append((torch.cat(step.edit.keep_masks), expected))
        assert "sampling_per_token_logps" in inputs[0] and "importance_sampling_ratio" in inputs[0]
        return step

    trainer._edit_step = recorded
    trainer.train()
    assert trainer.vllm_generation.settings["mode"] == mode and trainer.vllm_generation.syncs == 2
    assert len(comparisons) == 2 and any((~found).any() for found, _ in comparisons)
    for found, expected in comparisons:
        assert torch.equal(found, expected)


def test_the_importance_ratio_multiplies_kept_tokens_only(make_vllm_trainer, monkeypatch):
    losses = []
    trainers = [make_vllm_trainer(per_device_train_batch_size=4) for _ in range(2)]
    for trainer, spoiled in zip(trainers, (1.0, 1e6), strict=True):
        inputs = make_inputs()
        logps, entropies = score(trainer, inputs)
        keep = reference_keep_mask(logps, entropies, inputs["advantages"], inputs["completion_mask"])
        assert (~keep).any()
        ratio = torch.rand(keep.shape, generator=torch.Generator().manual_seed(3)) + 0.5
        inputs["importance_sampling_ratio"] = torch.where(keep, ratio, spoiled)
        inputs["old_per_token_logps"] = inputs["sampling_per_token_logps"] = logps
        losses += run_step(trainer, [inputs])
        kept = (keep & inputs["completion_mask"].bool()).float()
        expected = -(ratio * inputs["advantages"].unsqueeze(1) * kept).sum() / kept.sum()
        torch.testing.assert_close(losses[-1].detach(), expected)
    assert losses[0] == losses[1]


def test_sampling_log_probs_that_are_missing_are_harmless(make_vllm_trainer):
    trainer = make_vllm_trainer(noise=torch.nan)
    trainer.train()
    assert all(value.isfinite().all() for value in weights(trainer).values())
    assert sum(trainer.silenced_token_ids.values()) > 0


@pytest.mark.parametrize("steps_per_generation", [4, 8])
def test_the_first_step_of_a_generation_costs_no_forward_more_than_grpo(make_vllm_trainer, steps_per_generation):
    counts = []
    for name in (None, "GRPOTrainer"):
        trainer = make_vllm_trainer(
            name,
            per_device_train_batch_size=2,
            gradient_accumulation_steps=4,
            steps_per_generation=steps_per_generation,
            max_steps=1,
        )
        forwards = []
        trainer.model.register_forward_pre_hook(
            lambda module, args, kwargs, forwards=forwards: forwards.append(1) if "labels" in kwargs else None,
            with_kwargs=True,
        )
        trainer.train()
        counts.append(len(forwards))
    assert counts[0] == counts[1] > 0
