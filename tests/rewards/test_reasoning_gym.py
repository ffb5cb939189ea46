from stapo_trl.rewards.reasoning_gym import read_answer


def test_words_are_read_without_the_text_command_around_them():
    assert read_answer(r"So \boxed{\text{yes}}.") == "yes"
    assert read_answer("I give up.") is None
