"""DAPO, GSM8K and MATH in the shapes of their published copies, through the code that loads the real ones."""

import pytest

from stapo_trl.data import NAMES, find_loader, load_dapo, load_gsm8k, load_math
from stapo_trl.data.prompt import BOXED_INSTRUCTION, PREFIXES, SUFFIXES
from stapo_trl.rewards import math_accuracy_reward


# A problem of MATH-500
POLAR = (
    "Convert the point $(0,3)$ in rectangular coordinates to polar coordinates.  Enter your answer in the form "
    "$(r,\\theta),$ where $r > 0$ and $0 \\le \\theta < 2 \\pi.$"
)


def dapo_row(problem, gold, index="9a9b"):
    return {
        "data_source": "math_dapo",
        "prompt": [{"content": f"{PREFIXES[0]}\n\n{problem}\n\n{SUFFIXES[0]}", "role": "user"}],
        "ability": "MATH",
        "reward_model": {"ground_truth": gold, "style": "rule-lighteval/MATH_v2"},
        "extra_info": {"index": index},
    }


def texts(problems):
    return [prompt[0]["content"].removesuffix("\n" + BOXED_INSTRUCTION) for prompt in problems["prompt"]]


def test_dapo_as_published_gives_each_problem_once(write_repository, caplog):
    base = [("Find $a$.", "113"), ("Find $b$.", "-3"), ("求 $c$。", "1007"), ("Find $d$.", "5")]
    rows = [dapo_row(problem, gold, f"{copy}-{problem}") for copy in range(100) for problem, gold in base]
    rows.append(dapo_row("Find $d$.", "6"))
    write_repository("BytedTsinghua-SIA/DAPO-Math-17k", {"train": rows})
    problems = load_dapo()
    assert texts(problems) == ["Find $a$.", "Find $b$.", "求 $c$。"]
    assert problems["solution"][:] == ["113", "-3", "1007"]
    assert (
        "401 rows, 397 copies of others, 1 unusable (row 3: copies of the problem have different golds, '5'"
        in caplog.text
    )
    assert set(problems["source"]) == {"dapo-math-17k"}


def test_the_cleaned_copies_of_dapo_give_the_same_problems(write_repository):
    row = dapo_row("Find $a$.", "113")
    write_repository("BytedTsinghua-SIA/DAPO-Math-17k", {"train": [row]})
    published = list(load_dapo())
    for number, prompt in enumerate((row["prompt"][0]["content"], "Find $a$.")):
        repo_id = f"open-r1/DAPO-Math-17k-Processed-{number}"
        flat = row | {"prompt": prompt, "solution": "113", "source_prompt": row["prompt"]}
        write_repository(repo_id, {"all": {"train": [flat]}, "en": {"train": [flat]}})
        assert list(load_dapo(repo_id=repo_id, config="en")) == list(load_dapo(repo_id=repo_id)) == published
    for number, gold in enumerate(("113", 113, 113.0)):
        repo_id = f"haizhongzheng/DAPO-Math-17K-cleaned-{number}"
        write_repository(repo_id, {"train": [{"prompt": "Find $a$.", "target": gold, "ability": "MATH"}]})
        assert list(load_dapo(repo_id=repo_id)) == published


def test_dapo_keeps_its_own_instruction_if_asked(write_repository):
    row = dapo_row("Find $a$.", "113")
    write_repository("BytedTsinghua-SIA/DAPO-Math-17k", {"train": [row]})
    assert load_dapo(instruction=None)[0]["prompt"] == [{"role": "user", "content": row["prompt"][0]["content"]}]


def test_gsm8k_reads_the_number_behind_the_hashes(write_repository):
    rows = [
        {"question": "Ann’s 3 boxes?", "answer": "There are 3*4=<<3*4=12>>12 pens.\n#### 12"},
        {"question": "How many?", "answer": "So 25*85=<<25*85=2125>>2,125.\n#### 2,125"},
        {"question": "How cold?", "answer": "It falls.\n#### -7"},
    ]
    write_repository("openai/gsm8k", {"main": {"train": rows[:2], "test": rows[2:]}, "socratic": {"train": rows[:1]}})
    assert load_gsm8k()["solution"][:] == ["12", "2125"]
    problems = load_gsm8k(split="test", prompt_format="plain")
    assert problems[0]["prompt"] == "How cold?\n" + BOXED_INSTRUCTION and problems[0]["solution"] == "-7"
    assert math_accuracy_reward([r"\boxed{2,125}"], solution=["2125"]) == [1.0]


def test_gsm8k_in_verls_shape(tmp_path):
    from datasets import Dataset

    row = {
        "data_source": "openai/gsm8k",
        "prompt": [{"role": "user", "content": f"How many? {SUFFIXES[-1]}"}],
        "reward_model": {"style": "rule", "ground_truth": "72"},
        "extra_info": {
            "answer": "48+24=<<48+24=72>>72\n#### 72",
            "index": 0,
            "question": "How many?",
            "split": "train",
        },
    }
    Dataset.from_list([row]).to_parquet(tmp_path / "train.parquet")
    problems = load_gsm8k(tmp_path / "train.parquet")
    assert texts(problems) == ["How many?"] and problems["solution"][:] == ["72"]


MATH_ROWS = [
    {"problem": "What is $1+1$?", "level": "Level 1", "type": "Algebra", "solution": r"We add: $1+1=\boxed{2}$."},
    {"problem": "Half?", "level": "Level 5", "type": "Algebra", "solution": r"It is $\boxed{\dfrac{1}{\sqrt{2}}}$."},
    {"problem": "Bare?", "level": "Level ?", "type": "Algebra", "solution": r"So $\boxed 7$."},
    {"problem": "Framed?", "level": "Level 2", "type": "Algebra", "solution": r"So $\fbox{10,\!080}$."},
    {"problem": POLAR.replace("  ", "\n"), "level": "Level 2", "type": "Algebra", "solution": r"$\boxed{3}$"},
]
MATH_GOLDS = ["2", r"\dfrac{1}{\sqrt{2}}", "7", r"10,\!080"]


@pytest.mark.parametrize("streaming", [False, True])
def test_math_takes_all_subjects_and_leaves_out_math_500(write_repository, streaming, caplog):
    write_repository(
        "EleutherAI/hendrycks_math",
        {
            "algebra": {"train": MATH_ROWS[:2], "test": MATH_ROWS[:1]},
            "geometry": {"train": MATH_ROWS[2:], "test": MATH_ROWS[:1]},
        },
    )
    problems = load_math(streaming=streaming)
    assert [row["solution"] for row in problems] == MATH_GOLDS
    assert streaming or "left out 1 problems of MATH-500" in caplog.text
    assert len(load_math(split="test")) == 1  # the same problem in two configurations


def test_math_with_answers_beside_the_solutions(write_repository):
    rows = [
        {
            "problem": row["problem"],
            "solution": row["solution"],
            "answer": gold,
            "subject": "Algebra",
            "level": 1,
            "unique_id": "u",
        }
        for row, gold in zip(MATH_ROWS, [*MATH_GOLDS, "3"], strict=True)
    ]
    write_repository("nlile/hendrycks-MATH-benchmark", {"train": rows, "test": rows[:1]})
    assert load_math(repo_id="nlile/hendrycks-MATH-benchmark")["solution"][:] == MATH_GOLDS


def test_repositories_that_are_gone_say_what_to_do():
    with pytest.raises(FileNotFoundError, match="'EleutherAI/hendrycks_math' could not be loaded .*another copy"):
        load_math()


def test_loaders_are_found_by_name_and_by_file(tmp_path):
    assert {name: find_loader(name).__name__ for name in NAMES} == NAMES
    assert find_loader("openai/gsm8k") is None and find_loader(str(tmp_path)) is None
    (tmp_path / "sums.csv").write_text("text,result\n1+1?,02\n")
    problems = find_loader(str(tmp_path / "sums.csv"))(columns={"problem": "text", "solution": "result"})
    assert problems["solution"][:] == ["02"] and problems["source"][:] == ["sums"]
