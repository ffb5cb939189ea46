"""`evaluate`: from problems to a result, and from a killed run to the same result."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from datasets import Dataset
from toys import build_byte_model, build_byte_tokenizer

from stapo_trl.arithmetic.problems import load_arithmetic
from stapo_trl.arithmetic.warm_start import build_model, build_tokenizer
from stapo_trl.data import BENCHMARKS
from stapo_trl.evaluation import SamplingSettings, TransformersSampler, evaluate
from stapo_trl.evaluation.benchmark import from_dataset
from stapo_trl.evaluation.comparison import different_settings
from stapo_trl.evaluation.result import measure
from stapo_trl.evaluation.samples import Sample


DATA = Path(__file__).parents[3] / "shared" / "data" / "benchmarks"
needs_data = pytest.mark.skipif(not DATA.exists(), reason=f"the benchmarks are not at {DATA}")


def without_date(path):
    return {name: value for name, value in json.loads(path.read_text()).items() if name != "date"}


def test_one_right_sample_of_ten_counts_a_tenth_wherever_it_stands(oracle, problems, short):
    gold = problems[0]["solution"]
    answers = {row["problem_id"]: "\\boxed{-1}" for row in problems}
    answers[problems[0]["problem_id"]] = ["\\boxed{-1}"] * 6 + [f"\\boxed{{{gold}}}"] + ["\\boxed{-1}"] * 3
    entry = evaluate(oracle(answers), {"sums": problems}, 10, short)["benchmarks"]["sums"]
    assert entry["per_problem"][problems[0]["problem_id"]] == [1, 10]
    assert entry["accuracy"] == pytest.approx(0.1 / 6)
    assert entry["pass@k"]["10"][0] == pytest.approx(1 / 6)
    assert list(entry["pass@k"]) == ["1", "2", "4", "8", "10"]


def test_majority_counts_equal_answers_in_another_notation(oracle, short):
    dataset = Dataset.from_dict({"prompt": ["?"], "solution": ["\\frac{1}{2}"], "problem_id": ["p"]})
    answers = {"p": ["\\boxed{3}", "\\boxed{\\frac{1}{2}}", "\\boxed{\\dfrac12}", "\\boxed{4}"]}
    entry = evaluate(oracle(answers), {"x": dataset}, 4, short)["benchmarks"]["x"]
    assert entry["accuracy"] == 0.5 and entry["maj@k"]["4"][0] == 1


def test_shares_of_answers_and_lengths(oracle, problems, short):
    answers = {row["problem_id"]: "I do not know." for row in problems}
    answers[problems[0]["problem_id"]] = f"\\boxed{{{problems[0]['solution']}}}"
    entry = evaluate(oracle(answers), {"sums": problems}, 1, short)["benchmarks"]["sums"]
    assert entry["no_answer"] == pytest.approx(5 / 6) and entry["extracted"] == pytest.approx(1 / 6)
    assert (entry["truncated"], entry["length"], entry["entropy"]) == (0, 5, None)


def test_everything_extracted_and_nothing_right_is_warned_about(oracle, problems, short):
    wrong = {row["problem_id"]: "\\boxed{-1}" for row in problems}
    assert "none is right" in evaluate(oracle(wrong), {"sums": problems}, 1, short)["warnings"][0]
    assert evaluate(oracle(), {"sums": problems}, 1, short)["warnings"] == []


def test_golds_that_cannot_be_graded_count_as_wrong_and_are_counted(oracle, short):
    dataset = Dataset.from_dict({"prompt": ["a", "b"], "solution": ["2", ""], "problem_id": ["p", "q"]})
    result = evaluate(oracle({"p": "\\boxed{2}", "q": "\\boxed{2}"}), {"x": dataset}, 1, short)
    entry = result["benchmarks"]["x"]
    assert entry["accuracy"] == 0.5 and entry["unparseable_golds"] == 1
    assert "cannot be graded" in result["warnings"][0]


def test_overall_is_the_mean_over_benchmarks_with_their_own_n(oracle, problems, short):
    answers = {row["problem_id"]: f"\\boxed{{{row['solution']}}}" for row in problems.select(range(2))}
    answers |= {row["problem_id"]: "\\boxed{-1}" for row in problems.select(range(2, 6))}
    result = evaluate(
        oracle(answers), {"a": problems.select(range(2)), "b": problems.select(range(2, 6))}, {"a": 3, "b": 1}, short
    )
    assert result["overall"]["accuracy"] == 0.5  # not 6 of 10 samples, nor 2 of 6 problems
    assert result["benchmarks"]["a"]["n"] == [3, 3] and result["benchmarks"]["b"]["n"] == [1, 1]


def test_greedy_with_several_samples_is_refused_before_anything_is_loaded(problems):
    with pytest.raises(ValueError, match="temperature 0"):
        evaluate("no/such-model", {"sums": problems}, 8, SamplingSettings(0.0))


def test_the_judge_sees_only_what_the_rules_rejected(oracle, problems, short, tmp_path):
    asked = []

    def judge(questions, golds, responses):
        asked.extend(zip(questions, golds, responses, strict=True))
        return ["A", "B", None]

    answers = {row["problem_id"]: f"\\boxed{{{row['solution']}}}" for row in problems}
    rejected = [problems[index] for index in (1, 3, 5)]
    answers |= {row["problem_id"]: "The result is close." for row in rejected}
    answers[problems[2]["problem_id"]] = " \n"  # nothing to judge
    sampler = oracle(answers)
    entry = evaluate(sampler, {"sums": problems}, 1, short, tmp_path, judge=judge)["benchmarks"]["sums"]
    assert asked == [(row["prompt"], row["solution"], "The result is close.") for row in rejected]
    assert entry["accuracy"] == pytest.approx(3 / 6) and entry["judged"] == pytest.approx(1 / 6)
    assert sampler.closed
    lines = [json.loads(line) for line in open(tmp_path / "t1.0-p1.0.samples.jsonl")][1:]
    assert [line["problem_id"] for line in lines if line["judged"]] == [rejected[0]["problem_id"]]


def test_stored_samples_are_graded_again_and_never_generated_again(oracle, problems, short, tmp_path):
    first = oracle()
    expected = evaluate(first, {"sums": problems}, 2, short, tmp_path)
    path = tmp_path / "t1.0-p1.0.samples.jsonl"
    path.write_text(path.read_text().replace('"verdict": "correct"', '"verdict": "incorrect"'))
    second = oracle()
    found = evaluate(second, {"sums": problems}, 2, short, tmp_path)
    assert len(first.asked) == 12 and second.asked == []
    assert found["benchmarks"] == expected["benchmarks"]
    assert '"verdict": "incorrect"' not in path.read_text()


def test_more_samples_and_more_benchmarks_add_to_those_that_are_there(oracle, problems, short, tmp_path):
    evaluate(oracle(), {"sums": problems.select(range(3))}, 2, short, tmp_path)
    more = oracle()
    evaluate(more, {"sums": problems}, 3, short, tmp_path)
    assert len(more.asked) == len(set(more.asked)) == 18 - 6


def test_a_sample_of_another_prompt_is_refused(oracle, problems, short, tmp_path):
    evaluate(oracle(), {"sums": problems}, 1, short, tmp_path)
    changed = problems.map(lambda row: {"prompt": row["prompt"] + " "})
    with pytest.raises(ValueError, match="answers another prompt"):
        evaluate(oracle(), {"sums": changed}, 1, short, tmp_path)


def test_other_weights_in_the_same_folder_are_refused(saved, problems, short, tmp_path):
    evaluate(saved, {"sums": problems}, 1, short, tmp_path / "out")
    build_model(1).save_pretrained(saved)
    with pytest.raises(ValueError, match="weights: .* there, .* now"):
        evaluate(saved, {"sums": problems}, 1, short, tmp_path / "out")


def test_an_error_of_the_grader_stops_the_run(oracle, problems, short, monkeypatch):
    from stapo_trl.evaluation import run

    def broken(samples, problems):
        if samples:
            raise OSError("no space left")
        return []

    monkeypatch.setattr(run, "grade_samples", broken)
    with pytest.raises(OSError, match="no space left"):
        evaluate(oracle(chunk=3), {"sums": problems}, 4, short)
    with pytest.raises(OSError, match="no space left"):  # of the last samples, when none follow
        evaluate(oracle(chunk=24), {"sums": problems}, 4, short)


def test_entropy_is_a_mean_over_tokens_and_length_over_samples():
    benchmark = from_dataset("x", Dataset.from_dict({"prompt": ["a"], "solution": ["1"], "problem_id": ["p"]}))
    samples = [
        Sample("x", "p", 0, "c", "", num_tokens=9, truncated=True, entropy=1.0, verdict="no_answer"),
        Sample("x", "p", 1, "c", "", num_tokens=1, truncated=False, entropy=0.0, verdict="no_answer"),
    ]
    entry = measure(benchmark, samples)
    assert (entry["entropy"], entry["length"], entry["truncated"]) == (0.9, 5.0, 0.5)


def test_the_result_says_how_it_was_made(saved, problems, short, tmp_path):
    result = evaluate(saved, {"sums": problems}, 2, short, tmp_path / "out")
    stored = json.loads((tmp_path / "out" / "t1.0-p1.0.json").read_text())
    assert stored == json.loads(json.dumps(result))
    assert stored["model"] == saved and stored["backend"] == "transformers"
    assert stored["sampling"] == {
        "temperature": 1.0,
        "top_p": 1.0,
        "max_new_tokens": 12,
        "seed": 0,
        "top_k": 0,
        "min_p": 0.0,
        "repetition_penalty": 1.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
    }
    assert {"torch", "transformers", "math-verify", "sympy", "latex2sympy2_extended"} <= stored["versions"].keys()
    assert stored["benchmarks"]["sums"]["dataset"]["checksum"] and stored["benchmarks"]["sums"]["entropy"] > 0
    assert {file.suffix for file in (tmp_path / "out").iterdir()} == {".json", ".jsonl", ".md", ".csv"}


@needs_data
def test_every_problem_answered_with_its_gold_scores_all(oracle, short):
    result = evaluate(oracle(chunk=64), BENCHMARKS, 1, short, data_dir=DATA)
    found = {name: (entry["accuracy"], entry["unparseable_golds"]) for name, entry in result["benchmarks"].items()}
    assert found == dict.fromkeys(BENCHMARKS, (1, 0))


@needs_data
def test_the_six_benchmarks_end_to_end_with_a_tiny_model(saved, tmp_path):
    model = build_model()
    model.config.max_position_embeddings = 4096  # a token for each letter of the problems
    model.save_pretrained(saved)
    settings = SamplingSettings(1.0, 1.0, 4)
    result = evaluate(saved, BENCHMARKS, 2, settings, tmp_path / "out", data_dir=DATA, size=2)
    assert list(result["benchmarks"]) == list(BENCHMARKS)
    for entry in result["benchmarks"].values():
        assert entry["problems"] == 2 and entry["accuracy"] == 0 and entry["no_answer"] == 1
        assert 0 < entry["length"] <= 4 and entry["entropy"] > 0


RUN = """
import sys
from stapo_trl.arithmetic.problems import load_arithmetic
from stapo_trl.evaluation import SamplingSettings, TransformersSampler, evaluate
sampler = TransformersSampler(sys.argv[1], batch_size=int(sys.argv[3]))
evaluate(sampler, {"sums": load_arithmetic("test", 150)}, 4, SamplingSettings(1.0, 1.0, 60), sys.argv[2])
"""


@pytest.mark.slow
def test_a_run_killed_at_random_points_ends_in_the_same_result(saved, tmp_path):
    uninterrupted, parts = tmp_path / "uninterrupted", tmp_path / "parts"
    sampler = TransformersSampler(saved, batch_size=32)
    evaluate(sampler, {"sums": load_arithmetic("test", 150)}, 4, SamplingSettings(1.0, 1.0, 60), uninterrupted)
    samples, rng, kills = parts / "t1.0-p1.0.samples.jsonl", random.Random(0), 0
    for _ in range(4):
        process = subprocess.Popen([sys.executable, "-c", RUN, saved, str(parts), "8"])
        size = samples.stat().st_size if samples.exists() else 0
        while process.poll() is None and not (samples.exists() and samples.stat().st_size > size + 2000):
            time.sleep(0.01)
        time.sleep(rng.random() / 4)
        if process.poll() is None:
            os.kill(process.pid, signal.SIGKILL)
            kills += 1
        process.wait()
    assert kills > 0, "the run was over before it could be killed"
    held = len(samples.read_bytes().splitlines())
    subprocess.run([sys.executable, "-c", RUN, saved, str(parts), "32"], check=True)
    lines = samples.read_text().splitlines()
    assert 1 < held < len(lines) == len(set(lines)) == 1 + 600
    found, expected = (without_date(folder / "t1.0-p1.0.json") for folder in (parts, uninterrupted))
    for result in (found, expected):  # batches of 8 and 32 answers round the model's scores differently
        for entry in (result["overall"], result["benchmarks"]["sums"]):
            entry["entropy"] = round(entry["entropy"], 4)
    assert found == expected


def test_a_run_without_a_folder_writes_nothing(policy, problems, short, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    evaluate(policy[0], {"sums": problems}, 1, short, tokenizer=build_tokenizer())
    assert list(tmp_path.iterdir()) == []


def test_an_answer_inside_a_thought_that_the_prompt_opened_is_none(oracle, problems, short):
    texts = {row["problem_id"]: f"<think>\nI get \\boxed{{{row['solution']}}}. But wait" for row in problems}
    judged = []
    result = evaluate(
        oracle(texts), {"sums": problems}, 1, short, judge=lambda *asked: judged.extend(*asked[:1]) or []
    )
    assert result["overall"]["no_answer"] == 1 and judged == []


def test_the_variables_of_the_chat_template_are_part_of_the_result(saved, problems, short, tmp_path):
    tokenizer = build_byte_tokenizer("qwen3")
    model, chats = (
        build_byte_model(tokenizer),
        problems.map(lambda row: {"prompt": [{"role": "user", "content": row["prompt"]}]}),
    )
    off = {"enable_thinking": False}
    results = [
        evaluate(model, {"sums": chats}, 1, short, tmp_path / str(number), tokenizer, chat_template_kwargs=options)
        for number, options in enumerate((None, off))
    ]
    stored = [json.loads((tmp_path / name / "t1.0-p1.0.json").read_text()) for name in ("0", "1")]
    assert [result["chat_template_kwargs"] for result in stored] == [{}, off]
    assert different_settings(*stored) == ["chat_template_kwargs: {} and {'enable_thinking': False}"]
    del stored[0]["chat_template_kwargs"]  # of a former version
    assert different_settings(stored[0], results[0]) == []
    with pytest.raises(ValueError, match="other settings .chat_template_kwargs: .* there, {} now"):
        evaluate(model, {"sums": chats}, 1, short, tmp_path / "1", tokenizer)
    path = tmp_path / "0" / "t1.0-p1.0.samples.jsonl"
    path.write_text(path.read_text().replace(', "chat_template_kwargs": {}', "", 1))
    evaluate(model, {"sums": chats}, 1, short, tmp_path / "0", tokenizer)
    sampler = TransformersSampler(model, tokenizer)
    with pytest.raises(ValueError, match="give `chat_template_kwargs` to the sampler"):
        evaluate(sampler, {"sums": chats}, 1, short, chat_template_kwargs=off)
    with pytest.raises(ValueError, match="'enable_thinkin', but the chat template does not use it"):
        evaluate(model, {"sums": chats}, 1, short, None, tokenizer, chat_template_kwargs={"enable_thinkin": False})


def test_dropped_rows_are_counted_in_the_result(oracle, short, tmp_path):
    path = tmp_path / "own.jsonl"
    path.write_text('{"problem": "1+1?", "answer": "2"}\n{"problem": "2+2?", "answer": ""}\n')
    result = evaluate(oracle(), [str(path)], 1, short, unusable="drop")
    assert result["benchmarks"]["own"]["dropped"] == 1
    assert "own: 1 of 2 rows cannot be used and were dropped." in result["warnings"]
