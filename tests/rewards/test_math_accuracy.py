import pickle
from collections import defaultdict

import numpy as np
import pytest

from stapo_trl.rewards import MathAccuracyReward, math_accuracy_reward, strict_math_accuracy_reward


pytestmark = pytest.mark.usefixtures("shared_workers")
RIGHT, WRONG, SILENT = r"So \boxed{\frac12}.", r"So \boxed{2}.", "I do not know."


@pytest.fixture(scope="module")
def reward(shared_workers):
    return MathAccuracyReward()


def chat(text):
    return [{"role": "assistant", "content": text}]


def test_right_pays_one_wrong_and_silent_minus_one_and_a_bad_gold_nothing(reward):
    assert reward([RIGHT, WRONG, SILENT, RIGHT], ["0.5", "0.5", "0.5", ""]) == [1.0, -1.0, -1.0, None]


def test_chat_and_plain_completions_pay_the_same(reward):
    assert reward([chat(RIGHT), chat(WRONG)], ["0.5", "0.5"]) == reward([RIGHT, WRONG], ["0.5", "0.5"])


def test_golds_in_arrays_count_as_those_in_lists(reward):
    golds = [np.array(["0.5"]), np.array([0.5]), np.array(0.5), np.float64(0.5), ["0.5"]]
    assert reward([RIGHT] * 5, golds) == [1.0] * 5


def test_an_unknown_word_for_failures_is_refused():
    with pytest.raises(ValueError, match="`failed` is a reward, None to abstain, or 'wrong', got 'abstain'"):
        MathAccuracyReward(failed="abstain")


def test_gold_column_is_found(reward):
    columns = ("solution", "answer", "ground_truth")
    assert [reward([RIGHT], **{name: ["0.5"]}, prompts=["?"]) for name in columns] == [[1.0]] * 3


def test_missing_gold_column_is_named(reward):
    with pytest.raises(ValueError, match="`solution` or `answer` or `ground_truth`, but the columns are: level"):
        reward([RIGHT], level=["5"], prompts=["?"])
    with pytest.raises(ValueError, match="`target`"):
        MathAccuracyReward(answer_column="target", strict=True)([RIGHT], solution=["0.5"])


def test_prompt_is_never_graded(reward):
    assert reward([SILENT], ["5"], prompts=[r"Put it in \boxed{5}."]) == [-1.0]


def test_values_are_configurable():
    assert MathAccuracyReward(correct=2, wrong=0, strict=True)([r"\boxed{5}", "5"], ["5", "5"]) == [2, 0]
    with pytest.raises(ValueError, match="must exceed"):
        MathAccuracyReward(correct=0, wrong=0)


def test_killed_comparison_pays_as_configured(monkeypatch):
    for failed, paid in (("wrong", -1.0), (None, None), (-0.5, -0.5)):
        reward = MathAccuracyReward(failed=failed)
        with monkeypatch.context() as patch:
            patch.setattr(reward.verifier.pool, "run", lambda jobs, seconds: ["timeout"] * len(jobs))
            assert reward([r"\boxed{\sin^2 q}"], [r"1-\cos^2 q"]) == [paid]


def test_require_box_pays_boxes_only():
    reward = MathAccuracyReward(require_box=True)
    assert reward([r"\boxed{5}", "Answer: 5"], ["5", "5"]) == [1.0, -1.0]


def test_strict_is_an_exact_match_of_the_last_box_in_the_last_hundred_characters():
    cases = [
        (r"\boxed{5}", "5", 1.0),
        (r"\boxed{5}", 5, 1.0),
        (r"\boxed{5}", r"\boxed{5}", 1.0),
        (r"\boxed{5.0}", "5", -1.0),
        (r"\boxed{ 5}", "5", -1.0),
        (r"\boxed{5} \boxed{6}", "5", -1.0),
        (r"\boxed{5}" + "." * 91, "5", 1.0),  # 9 characters of box and 91 after it are the last 100
        (r"\boxed{5}" + "." * 92, "5", -1.0),
        ("Answer: 5", "5", -1.0),
        (r"\boxed{5}", "", None),
    ]
    texts, golds, paid = zip(*cases, strict=True)
    assert strict_math_accuracy_reward(texts, solution=golds) == list(paid)


def test_strict_refuses_options_that_it_ignores():
    with pytest.raises(ValueError, match="tolerance"):
        MathAccuracyReward(strict=True, tolerance=0.1)


def test_verdicts_and_shares_are_logged(reward):
    columns, metrics = {}, {}
    reward(
        [RIGHT, SILENT, WRONG, RIGHT],
        ["0.5", "0.5", "0.5", ""],
        log_extra=columns.__setitem__,
        log_metric=metrics.__setitem__,
    )
    name = "math_accuracy_reward"
    assert columns[f"{name}/verdict"] == ["correct", "no_answer", "incorrect", "unparseable_gold"]
    assert columns[f"{name}/answer"] == [r"\frac12", "", "2", ""]
    kinds = ("correct", "incorrect", "no_answer", "unparseable_gold", "timeout", "error")
    assert [metrics[f"{name}/{kind}"] for kind in kinds] == [0.25, 0.25, 0.25, 0.25, 0, 0]
    assert 0 <= metrics[f"{name}/seconds"] < 30


def test_rewards_pickle_and_have_names(reward):
    for function in (reward, math_accuracy_reward, strict_math_accuracy_reward, MathAccuracyReward(strict=True)):
        copy = pickle.loads(pickle.dumps(function))
        assert copy.__name__ == function.__name__
        assert copy([r"\boxed{5}"], ["5"]) == [1.0]


def test_default_function_equals_the_class(reward):
    assert math_accuracy_reward([RIGHT, WRONG], solution=["0.5", "0.5"]) == reward([RIGHT, WRONG], ["0.5", "0.5"])


def test_judge_sees_only_what_the_rules_reject():
    asked = []

    def judge(questions, golds, responses):
        asked.extend(zip(questions, golds, responses, strict=True))
        return ["A" if "half" in response else "B" for response in responses]

    columns, metrics = {}, {}
    reward = MathAccuracyReward(judge=judge)
    rewards = reward(
        [RIGHT, r"\boxed{one half}", WRONG, RIGHT, "<think>half"],
        ["0.5", "0.5", "0.5", "", "0.5"],
        prompts=[[{"role": "system", "content": "s"}, {"role": "user", "content": "1/2?"}]] * 5,
        log_extra=columns.__setitem__,
        log_metric=metrics.__setitem__,
    )
    assert rewards == [1.0, 1.0, -1.0, None, -1.0]
    assert asked == [("1/2?", "0.5", r"\boxed{one half}"), ("1/2?", "0.5", WRONG)]
    assert columns["math_accuracy_reward/verdict"][1] == "correct (judge)"
    assert metrics["math_accuracy_reward/judge_accepted"] == 0.2
    with pytest.raises(ValueError, match="prompts"):
        reward([WRONG], ["0.5"])


@pytest.mark.slow
def test_plain_grpo_trainer_trains_with_it(tmp_path):
    datasets, trl, transformers = (pytest.importorskip(name) for name in ("datasets", "trl", "transformers"))
    tokenizers = pytest.importorskip("tokenizers")
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizers.Tokenizer(
            tokenizers.models.WordLevel({"5": 0, "6": 1, "<eos>": 2}, unk_token="5")
        ),
        eos_token="<eos>",
        pad_token="<eos>",
    )
    model = transformers.Qwen2ForCausalLM(
        transformers.Qwen2Config(
            vocab_size=3,
            hidden_size=8,
            intermediate_size=8,
            num_hidden_layers=1,
            num_attention_heads=2,
            num_key_value_heads=2,
        )
    )
    trainer = trl.GRPOTrainer(
        model=model,
        processing_class=tokenizer,
        reward_funcs=[math_accuracy_reward, MathAccuracyReward(strict=True)],
        args=trl.GRPOConfig(
            output_dir=str(tmp_path),
            use_cpu=True,
            bf16=False,
            report_to="none",
            max_steps=1,
            logging_steps=1,
            per_device_train_batch_size=4,
            num_generations=4,
            max_completion_length=4,
        ),  # fmt: skip
        train_dataset=datasets.Dataset.from_list([{"prompt": "5 6", "answer": "5"}] * 4),
    )
    trainer.train()
    logged = defaultdict(float)
    for entry in trainer.state.log_history:
        logged.update(entry)
    assert logged["rewards/math_accuracy_reward/mean"] == -1.0
    assert logged["math_accuracy_reward/no_answer"] == 1.0
    assert logged["rewards/strict_math_accuracy_reward/mean"] == -1.0
