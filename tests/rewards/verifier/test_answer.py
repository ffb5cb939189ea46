import random

import pytest

from stapo_trl.rewards.verifier.answer import final_answer, gold_answer, last_box


TABLE = [
    ("So \\boxed{5}.", "5"),
    ("no answer 5", None),
    ("<think>\\boxed{5}</think>", None),
    ("<think>\\boxed{5}</think> ", None),
    ("<think>\\boxed{5}", None),
    ("<think>x</think>\\boxed{6}", "6"),
    ("x\\boxed{5}</think>Answer: 6", "6"),
    ("<think>a</think> The answer is 6.", "6"),
    ("first \\boxed{3} then \\boxed{5}", "5"),
    ("\\boxed{5} wait ... \\boxed{7}", "7"),
    ("\\boxed{2} and \\boxed{3}", "2, 3"),
    ("$\\boxed{2}$, $\\boxed{3}$", "2, 3"),
    ("\\boxed{2}, \\boxed{3}, and \\boxed{4}", "2, 3, 4"),
    ("$x=\\boxed{1}$ and $y=\\boxed{2}$", "1, 2"),
    ("\\boxed{2}\\boxed{3}", "2, 3"),
    ("\\boxed{5}\n\n\\boxed{7}", "7"),
    ("\\boxed{5} or \\boxed{7}", "5, 7"),
    ("\\boxed{5} \\text{ and } \\boxed{7}", "5, 7"),
    ("\\boxed{5} and \\boxed{}", None),
    ("\\boxed{}", None),
    ("\\boxed{ }", None),
    ("\\boxed{$ $}", None),
    ("\\boxed{5", None),
    ("\\boxed{5} \\boxed{6", None),
    ("\\boxed{\\frac{1}{2}", None),
    ("\\boxed {5}", "5"),
    ("\\fbox{5}", "5"),
    ("\\boxed 5", "5"),
    ("\\boxed5", "5"),
    ("boxed{5}", "5"),
    ("\\boxed{\\boxed{5}}", "5"),
    ("\\boxed{x=\\boxed{5}}", "x=5"),
    ("\\boxed{\\text{}}", None),
    ("\\boxed{?}", None),
    ("\\boxed{...}", None),
    ("\\boxed\n{5}", "5"),
    ("Answer: 5", "5"),
    ("**Answer:** 5", "5"),
    ("**Answer: 5**", "5"),
    ("Answer: $5$", "$5$"),
    ("Answer: \\boxed{13}", "13"),
    ("answer：5", "5"),
    ("Final Answer: **73**", "73"),
    ("### Final Answer\n\n5", "5"),
    ("**Final Answer**\n\n$5$", "$5$"),
    ("**Final Answer:**\n\\[ 5 \\]", "5"),
    ("The final answer is $5$. I hope it is correct.", "$5$"),
    ("The answer is 5", "5"),
    ("The answer is: 5", "5"),
    ("Therefore, the answer is $\\frac12$.", "$\\frac12$"),
    ("The answer is 3.5.", "3.5"),
    ("The answer is 5 because 2+3=5.", "5"),
    ("The answer is 5. Let me check. Fine.", "5"),
    ("#### 5", "5"),
    ("#### -5", "-5"),
    ("#### $1,234.00", "$1,234.00"),
    ("so\n#### 1,080\n", "1,080"),
    ("答案是5。", "5"),
    ("答案：5", "5"),
    ("答案为 5", "5"),
    ("所以答案是$\\frac{1}{2}$。", "$\\frac{1}{2}$"),
    ("最终答案是：5", "5"),
    ("<answer>5</answer>", "5"),
    ("<think>a</think><answer>5</answer>", "5"),
    ("**5**", "5"),
    ("Thus x is **5**.", "5"),
    ("We get **5** or **6**.", None),
    ("The answer is 5 or 6.", "5 or 6"),
    ("Answer: 1 2 3 4 5", "1 2 3 4 5"),
    ("Answer:", None),
    ("Answer: ", None),
    ("The answer is not 5.", "not 5"),
    ("I think 5 cases exist. The answer is \\boxed{}.", None),
    ("Answer: 5\n\nQuestion: what?", "5"),
    ("The answer is $x=5$, which is nice.", "$x=5$"),
    ("Final Answer: The largest $n$ is 34.", "34"),
    ("The correct answer is (C).", "(C)"),
    ("The answer is (B) 12.", "(B) 12"),
    ("Answer: 42<|im_end|>", "42"),
    ("Final answer: $\\sqrt{2}$\n", "$\\sqrt{2}$"),
    ("The final answer is:\n$$\n5\n$$", "5"),
    ("My answer: 5", "5"),
    ("Answer = 5", None),
    ("the answer to the question is 5", "5"),
    ("ANSWER: 5", "5"),
    ("The final answer is \\(5\\).", "\\(5\\)"),
    ("The final answer is $\\boxed{5}$.", "5"),
    (
        "In the box: \\boxed{\\begin{aligned} x&=1\\\\ y&=2\\end{aligned}}",
        "\\begin{aligned} x&=1\\\\ y&=2\\end{aligned}",
    ),
    ("", None),
    ("   ", None),
    ("Let me think about the answer. It is 5.", None),
    ("The answer is 5 apples.", "5 apples"),
    ("The answers are 2 and 3.", "2 and 3"),
    ("**Answer**: 5", "5"),
    ("__Answer:__ 5", "5"),
    ("Answer: **5**", "5"),
    ("> **Answer:** $5$", "$5$"),
    ("- Answer: 5", "5"),
    ("Answer: 5 cm.", "5 cm"),
    ("Answer: 0.5.", "0.5"),
    ("Answer: 1/2", "1/2"),
    ("*Answer: 5*", "5"),
    ("The answer is therefore 5.", "5"),
    ("The final answer is thus: 5", "5"),
    ("Final Answer\n5", "5"),
    ("Final Answer: \n\n5", "5"),
    ("The answer is $5$ or $6$.", "$5$ or $6$"),
    ("The answer is $5$ and not $6$", "$5$ and not $6$"),
    ("<think>hm</think>\n<think>\\boxed{5}", None),
    ("a <think>b</think> c \\boxed{5} </think>", None),
    ("<thinking>\\boxed{5}</thinking>ok", None),
    ("Thought: \\boxed{4}</think>\n\n**Final Answer**\n\\boxed{5}", "5"),
]


def test_final_answer_is_what_the_response_states():
    found = [(response, final_answer(response)) for response, _ in TABLE]
    assert not [(pair, expected) for pair, expected in zip(found, TABLE, strict=True) if pair != expected]


def test_require_box_ignores_other_forms():
    assert final_answer("Answer: 5", require_box=True) is None
    assert final_answer(r"Answer: \boxed{5}", require_box=True) == "5"


def test_a_long_box_before_a_long_epilogue_is_found_whole():
    inside = "+".join(rf"\frac{{{n}}}{{{n + 1}}}" for n in range(12))
    assert final_answer(rf"So \boxed{{{inside}}}." + " And so on." * 50) == inside


def test_extraction_is_linear_in_the_response():
    for text in (
        "answer " * 20_000,
        " " * 200_000,
        r"\boxed{" * 20_000,
        "*" * 100_000,
        "<think>" * 20_000,
        "{" * 100_000,
    ):
        assert final_answer(text) is None


def test_gold_answer_reads_what_data_sets_store():
    cases = [
        (5, "5"),
        (27.0, "27"),
        (1e-07, "1e-07"),
        ("  5 ", "5"),
        (["5"], "5"),
        (r"So \boxed{5}.", "5"),
        ("1+1\n#### 1,080", "1,080"),
        ("The proof is by induction on the number of vertices of the graph, which is finite.", None),
        (True, None),
        ({"a": 1}, None),
        (b"5", None),
        (r"\boxed{}", None),
        (r"\boxed{5", None),
        ("}{", None),
        (r"\frac{}{2}", None),
        ("\\sqrt{", None),
        ("None", None),
    ]
    assert [gold_answer(gold) for gold, _ in cases] == [text for _, text in cases]


def test_numpy_golds_are_numbers():
    numpy = pytest.importorskip("numpy")
    assert gold_answer(numpy.int64(5)) == "5" and gold_answer(numpy.float64(0.5)) == "0.5"


def test_last_box_is_raw():
    assert last_box(r"\boxed{1} \boxed{ 2 }") == " 2 "
    assert last_box("no box") is None and last_box(r"\boxed{1} or \boxed{2") is None


def test_broken_delimiters_never_raise():
    draw = random.Random(1)
    pieces = ["$", "$$", r"\(", r"\)", r"\[", r"\]", "Answer:", "answer is", "####", "**", "5", "\n", "\n\n", " ", ".", "{", "}",
              r"\boxed{", r"\boxed", "because ", "答案是", "<answer>", "</answer>", "<think>", "</think>", "Final answer", "x"]  # fmt: skip
    for _ in range(20_000):
        text = "".join(draw.choices(pieces, k=draw.randint(1, 9)))
        for read in (final_answer, gold_answer, last_box):
            assert read(text) is None or isinstance(read(text), str)
