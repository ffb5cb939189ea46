import functools

import pytest
import torch
from datasets import Dataset
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoTokenizer

from stapo_trl import STAPOConfig
from stapo_trl.arithmetic.warm_start import build_model, build_tokenizer
from stapo_trl.rewards import MathAccuracyReward, math_accuracy_reward
from stapo_trl.trainer.preflight import PLACEHOLDERS, check_dataset, check_policy, check_reward_columns


@pytest.fixture
def args(tmp_path):
    return STAPOConfig(str(tmp_path), use_cpu=True, bf16=False, per_device_train_batch_size=8, num_generations=4)


ROWS = Dataset.from_dict({"prompt": ["1+1=?", "1+2=?"], "answer": ["2", "3"]})


def test_two_prompts_fill_a_generation_batch_of_eight_completions_of_four(args):
    check_dataset(ROWS, args)
    with pytest.raises(ValueError, match="has 1 prompts, but one generation batch takes 2"):
        check_dataset(ROWS.select([0]), args)


def test_streams_are_checked_for_their_columns_only(args):
    check_dataset(ROWS.to_iterable_dataset(), args)
    with pytest.raises(ValueError, match="no column 'prompt'"):
        check_dataset(ROWS.rename_column("prompt", "problem").to_iterable_dataset(), args)


@pytest.mark.parametrize("column", ["answer", "solution", "ground_truth"])
def test_the_accuracy_reward_finds_any_of_its_answer_columns(column):
    check_reward_columns(Dataset.from_dict({"prompt": ["1+1=?"], column: ["2"]}), [math_accuracy_reward])


ANY = "'solution' or 'answer' or 'ground_truth'"


@pytest.mark.parametrize(
    ("reward", "wanted"),
    [(math_accuracy_reward, ANY), (MathAccuracyReward(), ANY), (MathAccuracyReward(answer_column="gold"), "'gold'")],
)
def test_a_missing_answer_column_is_named_before_the_first_step(reward, wanted):
    with pytest.raises(ValueError, match=f"'math_accuracy_reward' needs the column {wanted}.*only.*'target'"):
        check_reward_columns(ROWS.rename_column("answer", "target"), [reward])


def test_required_arguments_of_any_reward_are_columns():
    def with_metadata(completions, metadata, **kwargs):
        return [0.0] * len(completions)

    def with_default(prompts, completions, completion_ids, trainer_state, log_extra=None, difficulty=None, **kwargs):
        return [0.0] * len(completions)

    check_reward_columns(ROWS, [with_default, "reward/model", len, functools.partial(with_metadata, metadata=1)])
    with pytest.raises(ValueError, match="'with_metadata' needs the column 'metadata'"):
        check_reward_columns(ROWS, [with_default, with_metadata])


def chats(dataset):
    return dataset.map(lambda row: {"prompt": [{"role": "user", "content": row["prompt"]}]}, remove_columns="prompt")


def test_chat_prompts_without_a_chat_template_are_refused(make_trainer, dataset, tokenizer):
    with pytest.raises(ValueError, match="no chat template: use prompts of plain text"):
        make_trainer(train_dataset=chats(dataset))
    tokenizer.chat_template = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
    make_trainer(train_dataset=chats(dataset), processing_class=tokenizer)


def test_a_frozen_adapter_is_refused(make_trainer, tmp_path):
    get_peft_model(build_model(), LoraConfig(target_modules=["q_proj"])).save_pretrained(tmp_path / "adapter")
    with pytest.raises(ValueError, match="No parameter of the model is trainable.*is_trainable=True"):
        make_trainer(model=PeftModel.from_pretrained(build_model(), tmp_path / "adapter"))
    make_trainer(model=PeftModel.from_pretrained(build_model(), tmp_path / "adapter", is_trainable=True))


def test_a_tokenizer_with_more_tokens_than_the_model_is_refused_and_fewer_are_fine(make_trainer):
    small, large = build_model(), build_model()
    small.resize_token_embeddings(20)
    large.resize_token_embeddings(64)
    with pytest.raises(
        ValueError, match="has 5 tokens from .* .id 20. on that the model, with 20 embeddings, does not"
    ):
        make_trainer(model=small)
    make_trainer(model=large)


@pytest.mark.parametrize("with_adapter", [False, True])
def test_tokens_that_were_added_without_resizing_the_embeddings_are_refused_by_name(make_trainer, with_adapter):
    model, tokenizer = build_model(), build_tokenizer()
    model.resize_token_embeddings(len(tokenizer))
    tokenizer.add_tokens(["<think>", "</think>"])
    adapter = {"peft_config": LoraConfig(target_modules=["q_proj"])} if with_adapter else {}
    with pytest.raises(ValueError, match="has 2 tokens from '<think>' .*resize_token_embeddings"):
        make_trainer(model=model, processing_class=tokenizer, **adapter)
    model = build_model()
    model.resize_token_embeddings(len(tokenizer))
    make_trainer(model=model, processing_class=tokenizer, **adapter)


@pytest.mark.parametrize("name", PLACEHOLDERS)
def test_a_placeholder_of_images_needs_no_embedding_in_a_text_model(make_trainer, tmp_path, name):
    model = build_model()
    model.resize_token_embeddings(len(build_tokenizer()))
    build_tokenizer().save_pretrained(tmp_path / "tokenizer")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "tokenizer", extra_special_tokens={name: "<placeholder>"})
    assert len(tokenizer) > model.get_input_embeddings().num_embeddings
    make_trainer(model=model, processing_class=tokenizer)


def test_a_tokenizer_that_writes_chats_without_a_template_is_not_asked_for_one(dataset):
    class OwnChats:  # as mistral-common's
        def get_vocab(self):
            return {"a": 0}

    check_policy(build_model(), OwnChats(), chats(dataset))
    for prompts in (dataset, chats(dataset).to_iterable_dataset(), chats(dataset).select([]), None):
        check_policy(build_model(), build_tokenizer(), prompts)


def test_a_read_only_output_dir_is_refused_where_checkpoints_are_saved(make_trainer, monkeypatch):
    # No folder is read-only to the superuser, whom the tests may run as
    monkeypatch.setattr("os.access", lambda path, mode: False)
    with pytest.raises(ValueError, match="run', which is read-only here: give another output_dir"):
        make_trainer(save_strategy="steps")
    make_trainer(save_strategy="no")


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_weights_that_fp16_cannot_train_are_refused_unless_an_adapter_is_trained(make_trainer, dtype):
    with pytest.raises(ValueError, match=f"trainable weights are {dtype}.*dtype='float32'"):
        make_trainer(model=build_model().to(dtype), fp16=True)
    make_trainer(model=build_model().to(dtype), bf16=True)
    make_trainer(model=build_model().to(dtype), fp16=True, peft_config=LoraConfig(target_modules=["q_proj"]))
