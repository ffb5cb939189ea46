"""Nothing in a token is invisible, and no character of a token changes how the text around it is drawn."""

import unicodedata

from stapo_trl.observe.text import LONGEST, show_alternatives, show_text, show_token


def test_white_space_and_control_characters_become_signs():
    assert show_token(" \n\t\r\x00\x1b\x7f") == "␣↵⇥␍␀␛␡"
    assert show_text("a b\u00a0c") == "a b⟨U+00A0⟩c"


def test_no_shown_character_is_invisible_or_turns_the_text_around():
    hostile = "".join(map(chr, [*range(0x300), *range(0x2000, 0x2100), 0xFEFF, 0xE000, 0xD800, 0xE0001, 0x10FFFF]))
    shown = show_text(hostile)
    assert {unicodedata.category(sign) for sign in shown if sign != " "}.isdisjoint(
        {"Cc", "Cf", "Cs", "Co", "Zs", "Zl"}
    )


def test_letters_emoji_and_markup_stay_as_they_are():
    for text in ("你好", "🙂", "é", "<script>alert(1)</script>", "&lt;", "العربية", "$x$"):
        assert show_text(text) == show_token(text) == text


def test_an_empty_token_and_a_lone_combining_mark_can_be_seen():
    assert show_token("") == "⟨empty⟩" and show_token("\u0301") == "◌\u0301"


def test_a_token_longer_than_any_real_one_is_cut():
    assert show_token("x" * 100_000) == "x" * LONGEST + "…"


def test_alternatives_that_lack_a_part_are_shown_without_it():
    assert show_alternatives(None, None) == show_alternatives(["1"], None) == ""
    assert show_alternatives([None, "2", "3"], [0.5, None]) == "⟨empty⟩(50.00%) | 2(0.00%)"
