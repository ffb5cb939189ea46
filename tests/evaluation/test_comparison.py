import json

import numpy as np
import pytest

from stapo_trl import cli
from stapo_trl.evaluation import compare


def result(shares, name="sums", n=4, **fields):
    return {
        "model": "m [bold]x",
        "decoding": "t1.0-p1.0",
        "backend": "oracle",
        "sampling": {"seed": 0},
        "versions": {"sympy": "1"},
        "benchmarks": {
            name: {"per_problem": {str(i): [round(share * n), n] for i, share in enumerate(shares)}, "dataset": {}}
        },
    } | fields


def test_pairing_sees_what_separate_intervals_do_not():
    # Problems differ from 0 to 3/4, each run by the same quarter: separate intervals overlap, no difference is noise
    shares = np.tile([0.0, 0.25, 0.5, 0.75], 10)
    row = compare(result(shares), result(shares + 0.25))["sums"]
    assert row["difference"] == pytest.approx(0.25) and not row["is_noise"]
    assert (row["first"], row["second"], row["problems"]) == (0.375, 0.625, 40)


@pytest.mark.slow
def test_two_runs_of_one_policy_differ_by_noise_95_percent_of_the_time():
    rng = np.random.default_rng(0)
    rates = rng.random(80)
    noise = [
        compare(result(rng.binomial(4, rates) / 4), result(rng.binomial(4, rates) / 4))["sums"]["is_noise"]
        for _ in range(150)
    ]
    assert 0.9 <= np.mean(noise) <= 1.0


def test_the_interval_of_a_known_difference():
    # 100 problems: 20 gained, 10 lost. Variance 0.3 - 0.1^2 = 0.29, standard error sqrt(0.29 / 100) = 0.0539
    first = [0.0] * 20 + [1.0] * 10 + [0.0] * 70
    second = [1.0] * 20 + [0.0] * 10 + [0.0] * 70
    row = compare(result(first, n=1), result(second, n=1))["sums"]
    assert row["interval"] == [
        pytest.approx(0.1 - 1.96 * 0.0539, abs=0.012),
        pytest.approx(0.1 + 1.96 * 0.0539, abs=0.012),
    ]
    assert row["is_noise"]


def test_a_few_problems_prove_nothing():
    # Three of three gained: by chance 1 in 4 of such differences (1 in 32 for six)
    assert compare(result([0.0] * 3), result([1.0] * 3))["sums"]["is_noise"]
    assert not compare(result([0.0] * 6), result([1.0] * 6))["sums"]["is_noise"]
    assert compare(result([0.5]), result([0.5]))["sums"]["is_noise"]


def test_runs_with_another_number_of_samples_are_compared_by_shares():
    assert compare(result([0.5] * 9, n=4), result([0.5] * 9, n=32))["sums"]["difference"] == 0


def test_other_problems_or_golds_are_refused():
    with pytest.raises(ValueError, match="different problems"):
        compare(result([0.5] * 3), result([0.5] * 4))
    other = result([0.5] * 3)
    other["benchmarks"]["sums"]["dataset"] = {"checksum": "x"}
    with pytest.raises(ValueError, match="golds"):
        compare(result([0.5] * 3), other)
    with pytest.raises(ValueError, match="No benchmark is in both"):
        compare(result([0.5]), result([0.5], name="other"))


@pytest.fixture
def files(tmp_path):
    def write(*results):
        paths = [tmp_path / f"{index}.json" for index in range(len(results))]
        for path, content in zip(paths, results, strict=True):
            path.write_text(content if isinstance(content, str) else json.dumps(content))
        return list(map(str, paths))

    return write


def test_the_command_names_the_better_run_and_the_noise(files, capsys):
    both = [0.0] * 30, [0.75] * 30
    cli.main(["compare", *files(result(both[0]), result(both[1]))])
    printed = capsys.readouterr().out
    assert "+75.00" in printed and "B is better" in printed and "m [bold]x" in printed
    cli.main(["compare", *files(result(both[1]), result(both[0]))])
    assert "A is better" in capsys.readouterr().out
    cli.main(["compare", *files(result(both[0]), result(both[0], sampling={"seed": 1}, versions={"sympy": "2"}))])
    printed = capsys.readouterr().out
    assert "noise" in printed and "seed: 0 and 1" in printed and "sympy: 1 and 2" in printed


def test_other_files_are_refused_with_a_sentence(files):
    texts = [
        "",
        "[]",
        "null",
        "[" * 5000,
        "{}",
        '{"benchmarks": {"a": 1}}',
        '{"benchmarks": {"a": {}}}',
        "\ufeff\ufeff{}",
    ]
    counts = [[0, 0], [5, 4], [-1, 4], [1], ["1", 4], [1.5, 4], [float("nan"), 4], 7]
    changes = [{"benchmarks": {"sums": {"per_problem": {"0": count}}}} for count in counts]
    changes += [{"benchmarks": {"sums": {"per_problem": {}}}}, {"sampling": []}, {"versions": None}]
    for content in [*texts, *(result([0.5]) | change for change in changes)]:
        with pytest.raises(SystemExit, match="stapo compare: .*0.json is not a result of `stapo evaluate`"):
            cli.main(["compare", *files(content, result([0.5]))])


def test_control_characters_of_a_result_never_reach_the_terminal(files, capsys):
    odd = result([0.5] * 9, name="\x1b[31m", sampling={"a": "\x1b[2J"}) | {"model": "\u202e\x1b[31m"}
    cli.main(["compare", *files(odd, odd | {"sampling": {"a": 1}})])
    printed = capsys.readouterr().out
    assert "\x1b" not in printed and "\u202e" not in printed and "␛[2J" in printed


def test_missing_files_are_refused_with_a_sentence():
    with pytest.raises(SystemExit, match="stapo compare: .*no-such.json"):
        cli.main(["compare", "no-such.json", "no-such.json"])
