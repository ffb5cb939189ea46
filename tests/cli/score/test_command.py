"""`stapo score`: from a file of completions to a folder that `stapo report` opens."""

import json

import pytest

from stapo_trl import cli
from stapo_trl.arithmetic.warm_start import build_model, build_tokenizer
from stapo_trl.observe.report import build_report
from stapo_trl.observe.report.load import load_runs


@pytest.fixture
def folder(tmp_path):
    """A model's folder, and a file with 12 completions of 3 prompts."""
    build_model().save_pretrained(tmp_path / "model")
    build_tokenizer().save_pretrained(tmp_path / "model")
    rows = [
        {
            "prompt": f"{prompt}+1=?",
            "completion": f"{prompt}+{sample}=7; wait \\boxed{{{sample}}}",
            "reward": sample % 2,
        }
        for prompt in range(3)
        for sample in range(4)
    ]
    (tmp_path / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path


def score(folder, *more):
    arguments = ["--model", folder / "model", "--data", folder / "data.jsonl", "--output_dir", folder / "score"]
    cli.main(["score", *map(str, arguments), *more])
    return load_runs([folder / "score"])[0]


def test_the_folder_is_a_run_that_report_opens(folder, capsys):
    run = score(folder, "--prob_threshold", "0.05")
    printed = capsys.readouterr().out
    tokens = run.tokens.to_pylist()
    silenced = [row for row in tokens if row["silenced"]]
    assert f"STAPO would silence {len(silenced)}" in printed and "low probability, low entropy" in printed
    assert silenced and all(len(row["top_tokens"]) == 5 and row["gradient_norm"] > 0 for row in silenced)
    assert all(row["candidate"] and row["advantage"] > 0 and row["prob"] < 0.05 for row in silenced)
    assert any(not row["candidate"] for row in tokens) and run.completions.num_rows == 12
    # The text around a token is the text that was saved
    texts = [json.loads(line) for line in (folder / "data.jsonl").read_text().splitlines()]
    whole = {row["prompt"] + row["completion"] for row in texts}
    assert all(any(row["before"] + row["token"] + row["after"] in text for text in whole) for row in silenced)
    page = build_report([folder / "score"]).read_text()
    assert "Silenced tokens in context" in page and "Training curves" not in page


def test_a_threshold_belongs_to_its_mini_batch(folder):
    run = score(folder, "--mini_batch_size", "4", "--prob_threshold", "0.05")
    assert list(run.metrics.index) == [1, 2, 3]
    thresholds = run.tokens.select(["step", "entropy_threshold"]).to_pandas().groupby("step")["entropy_threshold"]
    assert (thresholds.nunique() == 1).all() and thresholds.first().nunique() == 3


def test_another_rule_shows_what_it_would_do(folder, capsys):
    run = score(folder, "--token_rule", "stare", "--token_rule_kwargs", '{"target_entropy": 9, "share": 0.2}')
    assert "The rule 'stare' would silence 0 of the tokens and change the advantage of " in capsys.readouterr().out
    tokens = run.tokens.to_pandas()
    ratios = (tokens.edited_advantage / tokens.advantage).astype(float).round(3)
    assert set(ratios[tokens.advantage > 0]) == {1.0, 1.1} and set(ratios[tokens.advantage < 0]) == {1.0}
    amplified = tokens[ratios == 1.1]
    assert amplified.prob.max() < tokens[(ratios == 1.0) & (tokens.advantage > 0)].prob.min()
    assert run.metrics["s2t/changed_share"].iloc[0] == pytest.approx(len(amplified) / len(tokens))
    assert "STARE" in str(run.tokens.schema.metadata) and build_report([folder / "score"]).exists()

    # Factors by the mean entropy of a response: the same for its tokens, and another for each
    tokens = score(folder, "--token_rule", "entropy_driven").tokens.to_pandas()
    factors = (tokens.edited_advantage / tokens.advantage).groupby(tokens.completion_id)
    assert factors.std().max() < 1e-5 and len(set(factors.mean().round(6))) == 12
    means = tokens.groupby("completion_id").entropy.mean()
    assert factors.mean().to_dict() == pytest.approx((means.mean() / means).to_dict(), rel=1e-4)


def test_scoring_again_replaces_the_folder(folder):
    first = score(folder, "--prob_threshold", "0.05").tokens.num_rows
    assert score(folder, "--prob_threshold", "0.05").tokens.num_rows == first


def test_what_cannot_be_scored_is_refused_with_a_sentence(folder, capsys):
    def refused(*arguments) -> str:
        with pytest.raises(SystemExit) as exit:
            score(folder, *arguments)
        assert exit.value.code == 1
        return capsys.readouterr().err

    assert "--mini_batch_size must be at least 1, got 0" in refused("--mini_batch_size", "0")
    assert "`prob_threshold` (tau_p) must be a number in [0, 1), got 2.0" in refused("--prob_threshold", "2")
    assert "no column 'no such'" in refused("--prompt_column", "no such")
    assert "'kl_cov' compares the policy with the one that sampled" in refused("--token_rule", "kl_cov")
    assert "belong to the rule 's2t'" in refused("--token_rule", "stare", "--prob_threshold", "0.1")
    assert "--token_rule_kwargs must be a mapping" in refused("--token_rule", "stare", "--token_rule_kwargs", "0.1")
    assert "`rho` is no parameter" in refused("--token_rule", "stare", "--token_rule_kwargs", '{"rho": 1}')
    (folder / "score").mkdir()
    (folder / "score" / "config.json").write_text("{}")
    assert "holds other files already" in refused()
    (folder / "score" / "config.json").unlink()
    rows = [json.loads(line) | {"reward": 1.0} for line in (folder / "data.jsonl").read_text().splitlines()]
    (folder / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert "Every advantage is zero" in refused()
    (folder / "data.jsonl").write_text("".join(json.dumps(row | {"completion": ""}) + "\n" for row in rows))
    assert "Every completion in" in refused()
    ids = {"completion_ids": [4, 2**20], "advantage": 1.0}
    (folder / "data.jsonl").write_text("".join(json.dumps(row | ids) + "\n" for row in rows[:1]))
    assert "Completion 0 has the token id 1048576, but the model has" in refused()
    assert "is neither a folder with config.json" in refused("--model", str(folder / "absent"))
    assert "--temperature must be above 0, got inf" in refused("--temperature", "inf")


def test_a_prompt_longer_than_the_context_is_told(folder):
    row = {"prompt": "1" * 3000, "completion": "2", "advantage": 1.0}
    (folder / "data.jsonl").write_text(json.dumps(row))
    with pytest.warns(UserWarning, match="has 3001 tokens, but the model was made for"):
        score(folder)


def test_no_candidate_at_all_is_no_failure(folder, capsys):
    run = score(folder, "--prob_threshold", "0")
    assert "would silence 0" in capsys.readouterr().out and run.tokens.num_rows > 0
    assert "The log holds no spurious token." in build_report([folder / "score"]).read_text()
