"""
Run by `test_two_processes.py` under torchrun: two gloo processes, the same checks on each.

A failed check raises, so the process exits non-zero; a missing collective runs into the short timeout.
"""

import sys
import tempfile
import zlib
from datetime import timedelta
from pathlib import Path


sys.path.insert(0, str(Path(__file__).parents[1]))

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from peft import LoraConfig  # noqa: E402
from toys import (  # noqa: E402
    TOY_PROB_THRESHOLD,
    TOY_SETTINGS,
    content_reward,
    find_edits,
    find_silenced,
    record_steps,
    weights,
)
from trl import GRPOConfig, GRPOTrainer  # noqa: E402

from stapo_trl import STAPOConfig, STAPOTrainer
from stapo_trl.arithmetic.problems import load_arithmetic
from stapo_trl.arithmetic.warm_start import build_model, build_tokenizer
from stapo_trl.evaluation import BenchmarkCallback, SamplingSettings, evaluate
from stapo_trl.observe.token_log import read_token_log
from stapo_trl.trainer.collectives import gather_ragged, sum_over_processes
from stapo_trl.trainer.resume import StopOnInterrupt


UNCLIPPED = {"epsilon": 1.0, "epsilon_high": float("inf")}
# One micro-batch of 8 is used twice, so that the policy has moved in the second step
SIBLINGS = {
    "stare": ({"variant": "C2", "share": 0.3, "target_entropy": 9.0}, {}),
    "top_entropy": ({}, {}),
    "clip_cov": ({"share": 0.2, "lower": 0.02, "upper": 9.0}, {}),
    "entropy_driven": ({}, {}),
    "kl_cov": ({"share": 0.2}, UNCLIPPED),
    "aspo": ({"clip": 0.01, "clip_high_entropy": 0.02}, UNCLIPPED),
    "dppo": ({"threshold": 0.0005}, {"loss_type": "cispo", "epsilon_high": 2.0}),
}


def make_trainer(
    trainer_class=STAPOTrainer, reward_funcs=content_reward, peft_config=None, callbacks=None, **overrides
):
    settings = TOY_SETTINGS | {
        "output_dir": tempfile.mkdtemp(),
        "per_device_train_batch_size": 4,
        "learning_rate": 0.1,
        "optim": "sgd",
        "ddp_timeout": 20,
    }
    if trainer_class is STAPOTrainer and "token_rule" not in overrides:
        settings |= {"s2t_prob_threshold": TOY_PROB_THRESHOLD}
    settings.update(overrides)
    config_class = STAPOConfig if trainer_class is STAPOTrainer else GRPOConfig
    return trainer_class(
        model=build_model(0),
        reward_funcs=reward_funcs,
        args=config_class(**settings),
        train_dataset=load_arithmetic("train", 64, num_terms=3),
        processing_class=build_tokenizer(),
        peft_config=peft_config,
        callbacks=callbacks,
    )


def same_on_both(values) -> bool:
    gathered = [None, None]
    dist.all_gather_object(gathered, values)
    return gathered[0] == gathered[1]


def fixed_completions(trainer, odd_rows: str | None = None):
    """
    Replaces sampling by completions that depend on the prompt and its copy alone, however prompts are spread.

    Rows from the fifth on, which are the second process's, can be `"greedy"` (generated, so no token of theirs is
    improbable) or have `"no end"`.
    """
    vocabulary = len(trainer.processing_class)
    seen = {}

    def generate(prompts):
        output = original(prompts)
        first, completions = trainer.accelerator.process_index * len(prompts), []
        for row, prompt in enumerate(prompts):
            copy = seen[prompt] = seen.get(prompt, -1) + 1  # all copies of a prompt come to one process here
            generator = torch.Generator().manual_seed(zlib.crc32(f"{prompt}-{copy}".encode()))
            length = int(torch.randint(2, 12, (1,), generator=generator))
            completions.append(torch.randint(2, vocabulary, (length,), generator=generator).tolist() + [1])
            if odd_rows == "greedy" and first + row >= 4:
                completions[-1] = output[1][row]
            elif odd_rows == "no end" and first + row >= 4:
                completions[-1] = torch.randint(2, vocabulary, (12,), generator=generator).tolist()
        texts = trainer.processing_class.batch_decode(completions, skip_special_tokens=True)
        return (output[0], completions, output[2], texts, *output[4:])

    original = trainer._generate
    trainer._generate = generate
    return trainer


def check_ragged_gather(accelerator, rank):
    for lengths in [(3, 5), (3, 0), (0, 4), (0, 0)]:
        for dtype in (torch.float32, torch.bfloat16, torch.float64):
            own = (torch.arange(lengths[rank]) + 10.0 * rank).to(dtype)
            values, part = gather_ragged(accelerator, own)
            expected = [float(i) for i in range(lengths[0])] + [10.0 + i for i in range(lengths[1])]
            assert values.tolist() == expected and values[part].tolist() == own.tolist()
    # More than float32 counts exactly
    assert sum_over_processes(accelerator, [2**24 + 1.0, torch.tensor(rank)]) == [2.0**25 + 2, 1.0]


def quadrants(trainer) -> torch.Tensor:
    """Statistics of the first step, in the order of their names."""
    first = trainer.state.log_history[0]
    return torch.tensor([first[name] for name in sorted(first) if name.startswith("s2t/") and name.count("/") > 1])


def check_cut(reference_file, rank):
    """Two processes silence the tokens and take the step that one process does (`reference_file`)."""
    results = {}
    for selection in ("low_entropy", "random"):
        for rows, accumulation in ((4, 1), (2, 2), (1, 4)):
            trainer = fixed_completions(
                make_trainer(
                    per_device_train_batch_size=rows,
                    gradient_accumulation_steps=accumulation,
                    s2t_selection=selection,
                )
            )
            steps = record_steps(trainer)
            trainer.train()
            silenced = find_silenced(steps)
            parts = [None, None]
            dist.all_gather_object(parts, silenced)
            results[selection, rows, accumulation] = sorted(parts[0] + parts[1]), weights(trainer), quadrants(trainer)
            found = [
                {key: value for key, value in entry.items() if key.startswith("s2t/")}
                for entry in trainer.state.log_history
            ]
            assert same_on_both(found)
            logged = read_token_log(trainer.args.output_dir)
            assert sum(logged["silenced"].to_pylist()) == len(silenced)
            assert {int(name.split("-")[1]) for name in logged["completion_id"].to_pylist()} == {rank}
    expected = torch.load(reference_file, weights_only=False)
    for (selection, *_), (silenced, weight, statistics) in results.items():
        assert len(silenced) > 2 and len(statistics) > 16
        assert silenced == expected[selection][0], (selection, silenced, expected[selection][0])
        torch.testing.assert_close(weight, expected[selection][1])
        torch.testing.assert_close(statistics, expected[selection][2], rtol=1e-4, atol=1e-6)


def train_sibling(name, **settings):
    """(kept tokens, weights) of two iterations under a rule."""
    parameters, needed = SIBLINGS[name]
    trainer = make_trainer(token_rule=name, token_rule_kwargs=parameters, num_iterations=2, **needed, **settings)
    steps = record_steps(fixed_completions(trainer))
    trainer.train()
    return {key: keep for key, (keep, _) in find_edits(steps).items()}, weights(trainer), trainer.state.log_history


def check_siblings(reference_file):
    """As [`check_cut`], for the other rules."""
    expected = torch.load(reference_file, weights_only=False)
    for name in SIBLINGS:
        kept, weight, log = train_sibling(name, per_device_train_batch_size=2, gradient_accumulation_steps=2)
        parts = [None, None]
        dist.all_gather_object(parts, kept)
        own = [{key: value for key, value in entry.items() if key.startswith(("s2t/", f"{name}/"))} for entry in log]
        assert same_on_both(own) and any(own)
        assert parts[0] | parts[1] == expected[name][0], name
        torch.testing.assert_close(weight, expected[name][1], rtol=1e-4, atol=1e-5)


def check_ranks_without_candidates(rank):
    """A rank without a positive response, without a candidate, or with padding alone: no hang, finite weights."""

    def first_rank_only(completions, **kwargs):
        return [float(index % 2) if rank == 0 else 1.0 for index in range(len(completions))]

    def nobody(completions, **kwargs):
        return [1.0] * len(completions)

    for reward in (first_rank_only, nobody):
        for population in ("candidates", "all"):
            for accumulation in (1, 2):
                trainer = make_trainer(
                    reward_funcs=reward, s2t_entropy_population=population, gradient_accumulation_steps=accumulation
                )
                forwards = []
                trainer.model.register_forward_pre_hook(
                    lambda module, args, kwargs, forwards=forwards: forwards.append(1) if "labels" in kwargs else None,
                    with_kwargs=True,
                )
                trainer.train()
                assert same_on_both(len(forwards)), "ranks made different numbers of forward passes"
                assert all(value.isfinite().all() for value in weights(trainer).values())

    trainer = make_trainer(mask_truncated_completions=True, gradient_accumulation_steps=2)
    trainer.eos_token_ids = [] if rank == 0 else trainer.eos_token_ids  # all of rank 0's completions are truncated
    trainer.train()
    assert all(value.isfinite().all() for value in weights(trainer).values())


def check_nonfinite(rank):
    """The loss of one process is infinite with a finite gradient: both skip the step, or both stop before it."""
    for on_nonfinite in ("skip", "raise"):
        trainer = make_trainer(on_nonfinite=on_nonfinite, max_steps=1)
        before, compute_loss = weights(trainer), trainer._compute_loss
        trainer._compute_loss = lambda *args, own=compute_loss: own(*args) + (torch.inf if rank == 0 else 0.0)
        try:
            trainer.train()
            assert on_nonfinite == "skip"
        except RuntimeError as error:
            assert on_nonfinite == "raise" and "The loss of step 1" in str(error), error
        torch.testing.assert_close(weights(trainer), before, rtol=0, atol=0)


def check_off(rank):
    """Off, or with a threshold that silences nothing, it is GRPO; also with an adapter that draws random numbers."""
    accumulation = {"gradient_accumulation_steps": 2, "per_device_train_batch_size": 2}
    several = {"gradient_accumulation_steps": 2, "steps_per_generation": 4, "num_iterations": 2}
    adapter = {"peft_config": LoraConfig(target_modules=["q_proj", "v_proj"], lora_dropout=0.5)}
    for settings in ({}, several, accumulation | adapter):
        grpo = make_trainer(GRPOTrainer, **settings)
        grpo.train()
        expected = weights(grpo), torch.get_rng_state()
        for own in ({"s2t_prob_threshold": 0.0}, {"s2t_entropy_quantile": 0.0}):
            stapo = make_trainer(**own, **settings)
            stapo.train()
            torch.testing.assert_close(weights(stapo), expected[0], rtol=0, atol=0)
            assert torch.equal(torch.get_rng_state(), expected[1]), (own, settings)


def check_stop(rank):
    """A signal that reaches one process between two steps ends both after the same one."""
    stop = StopOnInterrupt()
    trainer = make_trainer(callbacks=[stop], max_steps=3, save_strategy="steps", save_steps=100)
    stop.stopped = rank == 1
    trainer.train()
    assert stop.stopped and trainer.state.global_step == 1


def check_benchmark():
    """The processes share the samples of a benchmark, and each has the metrics of all of them."""
    problems, settings = {"sums": load_arithmetic("test", 5, num_terms=3)}, SamplingSettings(1.0, 1.0, 12)
    model, tokenizer = build_model(0), build_tokenizer()
    callback = BenchmarkCallback(1, problems, 3, settings)
    callback._measure(1, model, tokenizer)
    alone = evaluate(model, problems, 3, settings, tokenizer=tokenizer)["benchmarks"]["sums"]
    assert callback.metrics["sums/length"] == alone["length"] and same_on_both(callback.metrics)
    make_trainer(callbacks=[callback]).train()
    assert callback.step == TOY_SETTINGS["max_steps"] and same_on_both(callback.metrics)


def reference(path):
    """The same steps on one process."""
    results = {}
    for selection in ("low_entropy", "random"):
        trainer = fixed_completions(make_trainer(per_device_train_batch_size=8, s2t_selection=selection))
        steps = record_steps(trainer)
        trainer.train()
        results[selection] = sorted(find_silenced(steps)), weights(trainer), quadrants(trainer)
    for name in SIBLINGS:
        results[name] = train_sibling(name, per_device_train_batch_size=8)[:2]
    torch.save(results, path)


if __name__ == "__main__":
    if sys.argv[1] == "reference":
        reference(sys.argv[2])
    else:
        dist.init_process_group("gloo", timeout=timedelta(seconds=30))
        rank = dist.get_rank()
        trainer = make_trainer()
        assert trainer.accelerator.num_processes == 2, trainer.accelerator.distributed_type
        check_ragged_gather(trainer.accelerator, rank)
        check_off(rank)
        check_nonfinite(rank)
        check_ranks_without_candidates(rank)
        check_cut(sys.argv[2], rank)
        check_siblings(sys.argv[2])
        check_stop(rank)
        check_benchmark()
        print(f"rank {rank}: all checks passed")
        dist.destroy_process_group()
