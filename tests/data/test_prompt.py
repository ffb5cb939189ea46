import pytest

from stapo_trl.data.prompt import BOXED_INSTRUCTION, PREFIXES, SUFFIXES, THINK_INSTRUCTION, bare_problem, format_prompt


def test_formats_made_by_hand():
    assert format_prompt("1+1?", "plain") == "1+1?\n" + BOXED_INSTRUCTION
    assert format_prompt("1+1?") == [{"role": "user", "content": "1+1?\n" + BOXED_INSTRUCTION}]
    assert format_prompt("1+1?", "plain", None) == "1+1?"
    assert format_prompt("1+1?", "chat", THINK_INSTRUCTION, "Be brief.") == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "1+1?\n" + THINK_INSTRUCTION},
    ]
    assert format_prompt("1+1?", "plain", None, "Be brief.") == "Be brief.\n\n1+1?"


def test_other_formats_are_refused():
    with pytest.raises(ValueError, match="`prompt_format` must be one of .*'plain'.*, got 'text'"):
        format_prompt("1+1?", "text")


def test_only_the_instruction_is_taken_off():
    # the letters of the suffix end the problem as well: stripping characters would eat them
    problem = "Solve for Answer"
    for suffix in SUFFIXES:
        assert bare_problem(f"{PREFIXES[0]}\n\n{problem}\n\n{suffix}") == problem
        assert bare_problem(format_prompt(problem, "plain", suffix)) == problem
    assert bare_problem(problem) == problem
