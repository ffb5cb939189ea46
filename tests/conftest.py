import os


# Before any import of torch or of the hub's client
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import warnings  # noqa: E402

import pytest  # noqa: E402
from datasets import Dataset  # noqa: E402
from toys import TOY_PROB_THRESHOLD, TOY_SETTINGS, content_reward  # noqa: E402
from transformers.utils import logging as transformers_logging  # noqa: E402

from stapo_trl import STAPOConfig, STAPOTrainer
from stapo_trl.arithmetic.problems import load_arithmetic
from stapo_trl.arithmetic.warm_start import build_model, build_tokenizer


transformers_logging.set_verbosity_error()
warnings.filterwarnings("ignore", message=".*pin_memory.*")


@pytest.fixture
def tokenizer():
    return build_tokenizer()


@pytest.fixture
def dataset() -> Dataset:
    return load_arithmetic("train", 64, num_terms=3)


@pytest.fixture
def make_trainer(tmp_path, dataset):
    """A trainer of an untrained policy, two optimizer steps of eight completions; any argument can be replaced."""

    def make(trainer_class=STAPOTrainer, config_class=STAPOConfig, model=None, seed=0, **overrides):
        arguments = {
            "reward_funcs": content_reward,
            "train_dataset": dataset,
            "processing_class": build_tokenizer(),
        }
        for name in (
            "reward_funcs",
            "train_dataset",
            "eval_dataset",
            "processing_class",
            "callbacks",
            "peft_config",
            "token_rule",
        ):
            if name in overrides and not isinstance(overrides[name], str):  # a token rule's name is a setting
                arguments[name] = overrides.pop(name)
        settings = TOY_SETTINGS | {
            "output_dir": str(tmp_path / "run"),
            "per_device_train_batch_size": 8,
            "learning_rate": 1e-2,
        }
        if issubclass(config_class, STAPOConfig) and "token_rule" not in overrides:
            settings["s2t_prob_threshold"] = TOY_PROB_THRESHOLD
        settings.update(overrides)
        return trainer_class(model=model or build_model(seed), args=config_class(**settings), **arguments)

    return make


@pytest.fixture
def saved(tmp_path):
    """A folder with an untrained policy."""
    folder = tmp_path / "policy"
    build_model().save_pretrained(folder)
    build_tokenizer().save_pretrained(folder)
    return str(folder)
