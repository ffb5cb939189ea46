import pytest
import torch
from transformers import GenerationConfig

from stapo_trl.arithmetic import heldout
from stapo_trl.arithmetic.heldout import Accuracy, HeldOutAccuracy, measure_accuracy
from stapo_trl.arithmetic.problems import load_arithmetic, write_answer
from stapo_trl.arithmetic.warm_start import build_model, build_tokenizer
from stapo_trl.evaluation.samples import Sample


class Oracle:
    """Answers given texts, in turn, whatever it is asked."""

    backend, model, fingerprint = "oracle", "oracle", None

    def __init__(self, texts):
        self.texts = texts

    def sample(self, requests, settings):
        yield [
            Sample(*request.key, request.problem.checksum, text, num_tokens=1, truncated=False)
            for request, text in zip(requests, self.texts, strict=True)
        ]


def test_mean_and_standard_error_of_a_hand_made_case(monkeypatch):
    problems = load_arithmetic("test", 4)
    right = [write_answer(prompt) for prompt in problems["prompt"]]
    # Two answers each: both right, one right, none, none -> shares 1, 0.5, 0, 0, whose mean is 0.375
    wrong = "\\boxed{}"
    texts = [right[0], right[0], right[1], wrong, wrong, wrong, wrong, wrong]
    monkeypatch.setattr(heldout, "TransformersSampler", lambda *args, **options: Oracle(texts))
    accuracy = measure_accuracy(None, None, problems, 56, num_samples=2, temperature=1.0)
    assert accuracy.mean == 0.375
    # Their sample variance is (0.625^2 + 0.125^2 + 2 * 0.375^2) / 3 = 0.2292, over 4 problems: sqrt(0.2292 / 4)
    assert accuracy.standard_error == pytest.approx(0.2394, abs=1e-4)
    assert str(Accuracy(0.375, 0.2394)) == "37.5 ± 23.9 %"


def test_measuring_leaves_mode_generation_defaults_and_random_numbers_alone():
    model, tokenizer = build_model(), build_tokenizer()
    model.generation_config = GenerationConfig(
        temperature=0.1, top_k=1, eos_token_id=1, pad_token_id=0, do_sample=True
    )
    own = model.generation_config
    model.train()
    torch.manual_seed(0)
    state = torch.get_rng_state()
    first = measure_accuracy(model, tokenizer, load_arithmetic("test", 5), 8, num_samples=2, temperature=1.0)
    assert torch.equal(torch.get_rng_state(), state)
    assert model.training and model.generation_config is own
    assert first == measure_accuracy(model, tokenizer, load_arithmetic("test", 5), 8, num_samples=2, temperature=1.0)


def test_heldout_accuracy_stands_with_the_other_metrics_of_its_step(make_trainer):
    trainer = make_trainer(max_steps=4)
    trainer.add_callback(HeldOutAccuracy(trainer, load_arithmetic("validation", 5, num_terms=3), every_steps=2))
    trainer.train()
    assert [entry["step"] for entry in trainer.state.log_history if "heldout/greedy_accuracy" in entry] == [2, 4]


def test_measuring_does_not_change_the_run(make_trainer):
    plain = make_trainer(max_steps=3)
    plain.train()
    measured = make_trainer(max_steps=3)
    measured.add_callback(HeldOutAccuracy(measured, load_arithmetic("validation", 5, num_terms=3), every_steps=1))
    measured.train()
    for name, value in plain.model.state_dict().items():
        assert torch.equal(value, measured.model.state_dict()[name]), name
