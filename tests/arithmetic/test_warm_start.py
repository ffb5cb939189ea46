import pytest
from transformers import AutoModelForCausalLM, AutoTokenizer

from stapo_trl.arithmetic import warm_start
from stapo_trl.arithmetic.heldout import Accuracy
from stapo_trl.arithmetic.warm_start import WarmStart, build_model, get_warm_start


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("STAPO_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_the_model_has_about_a_tenth_of_a_million_parameters():
    assert 80_000 < build_model().num_parameters() < 120_000


def test_a_warm_start_is_trained_once_and_loads_like_any_model(cache, monkeypatch):
    settings = WarmStart(max_steps=2)
    folder = get_warm_start(settings)
    assert folder.parent == cache and [path.name for path in cache.iterdir()] == [folder.name]
    assert AutoModelForCausalLM.from_pretrained(folder).config.model_type == "qwen3"
    assert (
        AutoTokenizer.from_pretrained(folder).decode(AutoTokenizer.from_pretrained(folder)("1+2")["input_ids"])
        == "1+2"
    )
    monkeypatch.setattr(warm_start, "train_warm_start", lambda *args: pytest.fail("trained again"))
    assert get_warm_start(settings) == folder


def test_other_settings_are_another_warm_start(cache, monkeypatch):
    monkeypatch.setattr(warm_start, "train_warm_start", lambda settings, output_dir, callbacks: None)
    assert get_warm_start(WarmStart(seed=1)) != get_warm_start(WarmStart(seed=2))


def test_a_failed_warm_start_leaves_nothing_behind(cache, monkeypatch):
    def interrupted(settings, output_dir, callbacks):
        raise KeyboardInterrupt

    monkeypatch.setattr(warm_start, "train_warm_start", interrupted)
    with pytest.raises(KeyboardInterrupt):
        get_warm_start(WarmStart())
    assert list(cache.iterdir()) == []


@pytest.mark.slow
def test_supervised_steps_stop_at_the_target(cache, monkeypatch):
    measured = []

    def measure(model, tokenizer, problems, max_new_tokens):
        measured.append(len(problems))
        return Accuracy(0.3 * len(measured), 0.0)

    monkeypatch.setattr(warm_start, "measure_accuracy", measure)
    get_warm_start(WarmStart(target_accuracy=0.5, max_steps=200))
    assert measured == [200, 200]  # after 50 and 100 steps
