"""[`STAPOTrainer`]: GRPO with STAPO's token rule."""

import textwrap
from collections.abc import Callable
from dataclasses import fields

from torch import nn
from transformers import PreTrainedModel
from trl import GRPOConfig
from trl.trainer.utils import get_config_model_id

from ..rules.tokens import Rule
from .stapo_config import STAPOConfig, make_token_rule
from .token_rule import TokenRuleTrainer


class STAPOTrainer(TokenRuleTrainer):
    r"""
    Trainer for Spurious-Token-Aware Policy Optimization, [STAPO](https://huggingface.co/papers/2602.15620): GRPO in
    which improbable, low-entropy tokens of correct responses leave both the sum of the loss and its normaliser (fifth
    version of the paper, section on S2T).

    It is used exactly as [`~trl.GRPOTrainer`], with [`STAPOConfig`] in place of [`~trl.GRPOConfig`]. The probability
    and the entropy are those of the current policy in the trainer's own forward pass, after the sampling temperature.
    In an optimizer step of several micro-batches, the responses with a positive advantage are scored once more without
    gradients before the first backward pass; a step of one micro-batch costs no extra forward.

    An optimizer step that spans several generations draws all its completions before its first backward pass. So a policy
    with dropout draws the same random numbers as under GRPOTrainer, but in another order.

    With several optimizer steps per generation, TRL divides each step of the `dapo`, `cispo` and `vespo` losses by the
    *average* token count of the steps. That convention is kept, and scaled by the share of tokens kept in this step.

    Args:
        model, reward_funcs, train_dataset, and every other argument:
            As in [`~trl.GRPOTrainer`], in the same order.
        args ([`STAPOConfig`] or [`~trl.GRPOConfig`], *optional*):
            Configuration. A plain `GRPOConfig` is accepted and trained with STAPO's default thresholds.
        token_rule ([`~stapo_trl.rules.tokens.Rule`], *optional*):
            A rule of your own in place of the one that `args.token_rule` names: any callable
            `rule(tokens, gather) -> Edit` with an attribute `positive_only`, see `stapo_trl/rules/tokens.py`.

    Raises:
        `ValueError`: if the token rule needs another loss; if the dataset has no prompt column, lacks a column that a reward function asks for, or holds
        fewer prompts than one generation batch; if the policy cannot learn or read its prompts; if checkpoints cannot
        be written.
        `RuntimeError`: if TRL was patched by Unsloth, or changed one of the methods this class relies on.

    Example:

    ```python
    from datasets import load_dataset
    from stapo_trl import STAPOConfig, STAPOTrainer
    from stapo_trl.rewards import math_accuracy_reward

    trainer = STAPOTrainer(
        model="Qwen/Qwen3-0.6B-Base",
        reward_funcs=math_accuracy_reward,
        args=STAPOConfig(output_dir="run"),
        train_dataset=load_dataset("trl-lib/DeepMath-103K", split="train"),
    )
    trainer.train()
    ```
    """

    _tag_names = ["trl", "stapo"]
    _name = "STAPO"
    _paper = {
        "title": "STAPO: Stabilizing Reinforcement Learning for LLMs by Silencing Rare Spurious Tokens",
        "id": "2602.15620",
        # docstyle-ignore
        "citation": textwrap.dedent("""\
            @article{liu2026stapo,
                title        = {{STAPO: Stabilizing Reinforcement Learning for LLMs by Silencing Rare Spurious Tokens}},
                author       = {Shiqi Liu and Zeyu He and Guojian Zhan and Letian Tao and Zhilong Zheng and Jiang Wu and Yinuo Wang and Yang Guan and Kehua Sheng and Bo Zhang and Keqiang Li and Jingliang Duan and Shengbo Eben Li},
                year         = 2026,
                eprint       = {arXiv:2602.15620},
            }"""),
    }

    def __init__(
        self,
        model: str | PreTrainedModel | nn.Module,
        reward_funcs: Callable | str | PreTrainedModel | list | None = None,
        args: GRPOConfig | None = None,
        train_dataset=None,
        *more,
        token_rule: Rule | None = None,
        **kwargs,
    ):
        if args is None:
            model_name = model if isinstance(model, str) else get_config_model_id(model.config)
            args = STAPOConfig(f"{model_name.split('/')[-1]}-STAPO")
        for field in fields(STAPOConfig):
            if not hasattr(args, field.name):  # of a plain GRPOConfig
                setattr(args, field.name, field.default)
        if token_rule is None:
            token_rule = make_token_rule(args)
        super().__init__(model, reward_funcs, args, train_dataset, *more, token_rule=token_rule, **kwargs)
