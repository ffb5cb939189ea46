import pytest

from stapo_trl.rewards import MathAccuracyReward, grade
from stapo_trl.rewards.completion import completion_text, plain_messages


pytestmark = pytest.mark.usefixtures("shared_workers")


def chat(text):
    return [{"role": "assistant", "content": text}]


def test_completion_text_is_the_last_assistant_message():
    cases = [
        ("5", "5"),
        ([], ""),
        (chat(None), ""),
        ([*chat("1"), {"role": "tool", "content": "2"}, *chat("3")], "3"),
        ([*chat("1"), {"role": "tool", "content": "2"}], "1"),
        ([{"content": "1"}], "1"),
        ([{"role": None, "content": "1"}], "1"),  # as Arrow fills what is missing
        (None, ""),
        (chat(["a", None, {"type": "text", "text": None}, {"type": "text", "text": 5}]), "a5"),
        (chat([{"type": "text", "text": "a"}, {"type": "image"}, {"type": "text", "text": "b"}]), "ab"),
    ]
    assert [completion_text(completion) for completion, _ in cases] == [text for _, text in cases]


def test_what_is_no_completion_is_shown():
    reward = MathAccuracyReward()
    for completion in (5, b"5", ["5"], [None], {"role": "assistant", "content": "5"}, chat(5), chat({"text": "5"})):
        for call in (reward, grade):
            with pytest.raises(ValueError, match="(A completion is text or|A chat is) a list of messages.*got "):
                call([completion], ["5"])


def test_chats_are_graded_as_their_text_is():
    verdicts = grade([chat(r"So \boxed{\frac12}."), chat(None)], ["0.5", "0.5"])
    assert [verdict.kind for verdict in verdicts] == ["correct", "no_answer"]


def test_plain_messages_hold_text_where_there_were_lists():
    message = {"role": "user", "content": [{"type": "text", "text": "1+1?"}]}
    assert plain_messages([message]) == [{"role": "user", "content": "1+1?"}]
