"""The six evaluation sets: as published, in other shapes, and with the real problems."""

import json
from pathlib import Path

import pytest
from datasets import Dataset

from stapo_trl.data import BENCHMARKS, load_benchmark
from stapo_trl.data.prompt import BOXED_INSTRUCTION, PREFIXES, SUFFIXES
from stapo_trl.data.sets.overlap import benchmark_fingerprints
from stapo_trl.rewards import grade


REAL = Path(__file__).parents[4] / "shared" / "data" / "benchmarks"
needs_real = pytest.mark.skipif(not REAL.is_dir(), reason=f"the published evaluation sets are not at {REAL}")
SIZES = {"aime24": 30, "aime25": 30, "amc23": 40, "math500": 500, "minerva": 272, "olympiadbench": 674}


@needs_real
def test_every_real_problem_loads_and_its_own_gold_is_right(caplog):
    for name in BENCHMARKS:
        problems = load_benchmark(name, path=REAL)
        assert len(problems) == SIZES[name] == len(set(problems["problem_id"])) and not caplog.records
        answers = [f"\\boxed{{{solution}}}" for solution in problems["solution"]]
        assert all(verdict.correct for verdict in grade(answers, problems["solution"])), name
        assert {id.removeprefix(f"{name}-") for id in problems["problem_id"]} == benchmark_fingerprints()[name]


def test_the_fingerprints_are_there_without_the_problems():
    assert {name: len(prints) for name, prints in benchmark_fingerprints().items()} == SIZES
    assert len(frozenset().union(*benchmark_fingerprints().values())) == sum(SIZES.values())


URL = "https://artofproblemsolving.com/wiki/index.php/"
SHAPES = [  # name, repository, config, split, row, gold
    ("aime24", "HuggingFaceH4/aime_2024", "default", "train", {"id": 67, "problem": "p?", "solution": r"$\framebox{025}$", "answer": "025", "url": f"{URL}2024_AIME_I_Problems/Problem_2", "year": "2024"}, "025"),
    ("aime24", "math-ai/aime24", "default", "test", {"id": "0", "problem": "p?", "solution": r"\boxed{25}", "url": URL}, "25"),
    ("aime24", "Maxwell-Jia/AIME_2024", "default", "train", {"ID": "2024-I-2", "Problem": "p?", "Solution": "So 25.", "Answer": 25}, "25"),
    ("aime24", "AI-MO/aimo-validation-aime", "default", "train", {"id": 0, "problem": "p?", "solution": "s", "answer": "25", "url": f"{URL}2024_AIME_I_Problems/Problem_2"}, "25"),
    ("aime24", "BytedTsinghua-SIA/AIME-2024", "default", "train", {"data_source": "math_dapo", "prompt": [{"content": f"{PREFIXES[0]}\n\np?\n\n{SUFFIXES[0]}", "role": "user"}], "reward_model": {"ground_truth": "25", "style": "rule"}, "extra_info": {"index": 0, "raw_problem": "p?", "split": None}}, "25"),
    ("aime25", "math-ai/aime25", "default", "test", {"problem": "p?", "answer": "70", "id": "0"}, "70"),
    ("aime25", "opencompass/AIME2025", "AIME2025-I", "test", {"question": "p?", "answer": r"336^\circ"}, r"336^\circ"),
    ("aime25", "yentinglin/aime_2025", "default", "train", {"__index_level_0__": 3, "id": 0, "problem": "p?", "answer": "70", "solution": "s", "url": "u", "year": 2025}, "70"),
    ("aime25", "MathArena/aime_2025", "default", "train", {"problem_idx": 1, "problem": "p?", "answer": 70, "problem_type": ["Number Theory"]}, "70"),
    ("amc23", "math-ai/amc23", "default", "test", {"id": "0", "question": "p?", "answer": "27", "url": f"{URL}2023_AMC_12A_Problems/Problem_1"}, "27"),
    ("amc23", "math-ai/amc23", "default", "test", {"id": 0, "question": "p?", "answer": 27.0, "url": f"{URL}2023_AMC_12A_Problems/Problem_1"}, "27"),
    ("amc23", "AI-MO/aimo-validation-amc", "default", "train", {"id": 0, "problem": "p?", "answer": -1.0, "url": f"{URL}2023_AMC_12A_Problems/Problem_1"}, "-1"),
    ("math500", "HuggingFaceH4/MATH-500", "default", "test", {"problem": "p?", "solution": r"So $\boxed{\frac43}$", "answer": r"\frac43", "subject": "Algebra", "level": 1, "unique_id": "test/algebra/1.json"}, r"\frac43"),
    ("minerva", "math-ai/minervamath", "default", "test", {"question": "p?", "answer": "2.7e27"}, "2.7e27"),
    ("minerva", "knoveleng/Minerva-Math", "default", "train", {"problem": "p?", "solution": r"$m=\boxed{2.7e27}$ g", "type": "Astronomy", "idx": 0}, "2.7e27"),
    ("olympiadbench", "Hothan/OlympiadBench", "OE_TO_maths_en_COMP", "train", {"id": 1606, "question": "p?", "solution": ["Long."], "final_answer": ["$2n-2$"], "context": None, "modality": "Text-only", "difficulty": "Competition", "is_multiple_answer": False, "unit": None, "answer_type": "Expression", "error": None, "question_type": "Open-ended", "subfield": "Combinatorics", "subject": "Math", "language": "English"}, "2n-2"),
    ("olympiadbench", "math-ai/olympiadbench", "default", "test", {"question": "p?", "final_answer": ["$2$,$5$"]}, "$2$,$5$"),
]  # fmt: skip


@pytest.mark.parametrize("kind", ["parquet", "jsonl"])
def test_published_shapes_load_under_their_names(write_repository, tmp_path, monkeypatch, caplog, kind):
    for number, (name, repo_id, config, split, row, gold) in enumerate(SHAPES):
        rows = [row] if "raw_problem" not in str(row) else [row] * 32
        write_repository(f"{number}/{repo_id}", {config: {split: rows}}, kind)
        monkeypatch.chdir(tmp_path / str(number))
        caplog.clear()
        problems = load_benchmark(name, repo_id=repo_id, prompt_format="plain")
        assert problems["prompt"][:] == ["p?\n" + BOXED_INSTRUCTION], (repo_id, row)
        assert problems["solution"][:] == [gold] and problems["source"][:] == [name], (repo_id, row)
        assert f"{name}: 1 problems, {SIZES[name]} expected" in caplog.text


def test_the_default_repositories_are_asked(write_repository):
    for name, repo_id, config, split, row, gold in (SHAPES[0], SHAPES[5], SHAPES[9], *SHAPES[12:14], SHAPES[15]):
        write_repository(repo_id, {config: {split: [row]}})
        assert load_benchmark(name)["solution"][:] == [gold]


def test_both_parts_of_a_set_without_default_configuration_are_taken(write_repository):
    rows = [{"question": f"{i}?", "answer": str(i)} for i in range(4)]
    write_repository("opencompass/AIME2025", {"AIME2025-I": {"test": rows[:2]}, "AIME2025-II": {"test": rows[2:]}})
    assert load_benchmark("aime25", repo_id="opencompass/AIME2025")["solution"][:] == ["0", "1", "2", "3"]


def test_contests_of_other_years_are_left_out(tmp_path):
    rows = [
        {"problem": f"{year}?", "answer": "1", "url": f"{URL}{year}_AIME_I_Problems/Problem_1"}
        for year in (2022, 2023, 2024)
    ]
    Dataset.from_list(rows).to_parquet(tmp_path / "aime.parquet")
    problems = load_benchmark("aime24", path=tmp_path / "aime.parquet", prompt_format="plain")
    assert [prompt[:5] for prompt in problems["prompt"]] == ["2024?"]
    with pytest.raises(ValueError, match="holds no problem of aime25"):
        load_benchmark("aime25", path=tmp_path / "aime.parquet")


def test_images_proofs_physics_and_chinese_are_no_olympiad_problems(tmp_path):
    good = SHAPES[15][4] | {"image_1": None, "images": []}
    bad = [
        {"question": "picture?", "modality": "Multimodal"},
        {"question": "pictures?", "images": ["figure.png"]},
        {"question": "picture 1?", "image_1": "figure.png"},
        {"question": "prove!", "question_type": "Theorem proof", "final_answer": None},
        {"question": "proof without type", "final_answer": None},
        {"question": "force?", "subject": "Physics"},
        {"question": "什么？", "language": "Chinese"},
    ]
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(good | changed) + "\n" for changed in [{}, *bad]))
    assert len(load_benchmark("olympiadbench", path=file)) == 1


def test_a_set_is_found_in_a_folder_by_its_usual_names(tmp_path):
    files = [
        "math-500.parquet",
        "MATH500.parquet",
        "math_500/test.parquet",
        "sets/MATH-500/data/test-00000.parquet",
        "math500.test.parquet",
    ]
    for number, file in enumerate(files):
        folder = tmp_path / str(number)
        (folder / file).parent.mkdir(parents=True)
        Dataset.from_list([SHAPES[12][4]]).to_parquet(folder / file)
        Dataset.from_list([SHAPES[13][4]]).to_parquet(folder / "other.parquet")
        assert load_benchmark("math500", path=folder)["solution"][:] == [r"\frac43"], file
        with pytest.raises(FileNotFoundError, match="no file or folder named 'minerva', only .*other.parquet"):
            load_benchmark("minerva", path=folder)


def test_a_folder_in_the_shape_of_a_repository_is_found(tmp_path):
    file = tmp_path / "benchmarks/OlympiadBench/data/test-00000-of-00001.parquet"
    file.parent.mkdir(parents=True)
    Dataset.from_list([SHAPES[15][4]]).to_parquet(file)
    assert load_benchmark("olympiadbench", path=tmp_path / "benchmarks")["solution"][:] == ["2n-2"]


def test_a_row_without_a_gold_is_refused_by_its_number(tmp_path):
    rows = [{"problem": "p?", "answer": "1"}, {"problem": "q?", "answer": None}]
    Dataset.from_list(rows).to_parquet(tmp_path / "aime24.parquet")
    with pytest.raises(ValueError, match="aime24: 2 rows, 1 unusable .row 1: there is no gold answer"):
        load_benchmark("aime24", path=tmp_path)


def test_unknown_names_and_formats_are_refused_before_anything_is_read():
    with pytest.raises(ValueError, match="no benchmark 'aime26': give one of .*'aime24'"):
        load_benchmark("aime26")
    with pytest.raises(ValueError, match="`prompt_format` must be one of"):
        load_benchmark("aime24", prompt_format="text")
