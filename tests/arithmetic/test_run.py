from toys import TOY_SETTINGS, content_reward

from stapo_trl import STAPOConfig
from stapo_trl.arithmetic import run
from stapo_trl.arithmetic.heldout import HeldOutAccuracy
from stapo_trl.arithmetic.run import ProgressBar, build_trainer, measure
from stapo_trl.arithmetic.warm_start import WarmStart


def test_training_validation_and_test_problems_are_of_their_splits(saved, tmp_path, monkeypatch):
    measured = []

    def record(model, tokenizer, problems, length, num_samples=1, temperature=0.0):
        measured.append((problems, length, num_samples, temperature))

    monkeypatch.setattr(run, "get_warm_start", lambda settings, callbacks: saved)
    monkeypatch.setattr(run, "measure_accuracy", record)
    args = STAPOConfig(output_dir=str(tmp_path), per_device_train_batch_size=8, seed=3, **TOY_SETTINGS)
    trainer = build_trainer(args, content_reward, WarmStart(num_terms=3, seed=3), heldout_every=5, heldout_samples=2)
    (heldout,) = [each for each in trainer.callback_handler.callbacks if isinstance(each, HeldOutAccuracy)]
    assert (heldout.every_steps, heldout.num_samples) == (5, 2)
    measure(trainer, num_terms=3, max_new_tokens=32)
    measure(trainer, num_terms=3)
    (test, *_), _, _, _ = measured
    for split, problems, size in (
        ("train", trainer.train_dataset, 4000),
        ("validation", heldout.problems, 200),
        ("test", test, 500),
    ):
        assert set(problems["problem_id"]) == {f"arithmetic-{split}-{number}" for number in range(size)}
        assert all(prompt.count("+") + prompt.count("-") == 2 for prompt in problems["prompt"])
    # Greedy, then four samples at temperature 1; without a length, that of the training
    assert [call[1:] for call in measured] == [(32, 1, 0.0), (32, 4, 1.0), (12, 1, 0.0), (12, 4, 1.0)]


def test_the_bar_is_quiet_where_the_output_is_no_terminal(make_trainer, capfd):
    make_trainer(callbacks=[ProgressBar("STAPO", {"reward": "reward"})]).train()
    assert "STAPO" not in capfd.readouterr().err
