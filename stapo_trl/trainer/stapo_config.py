"""Configuration of [`STAPOTrainer`]: GRPO's own, with nine more fields and the paper's defaults."""

import math
from dataclasses import dataclass, field
from typing import Any

from transformers import SchedulerType
from trl import GRPOConfig

from ..observe.recorder import CLIPPED_LOSSES
from ..rules import RULES, make_rule
from ..rules.parameters import read_parameters
from ..rules.s2t import PAPER_PROB_THRESHOLD, PAPER_QUANTILE, POPULATIONS, S2T, SELECTIONS
from ..rules.tokens import Rule
from ..rules.top_entropy import TopEntropy


ON_NONFINITE = ("raise", "skip", "warn")
# Settings that make the loss that a rule names as its `loss`
LOSSES = {
    "unclipped": {"loss_type": "dapo", "epsilon": 1.0, "epsilon_high": float("inf")},
    "cispo": {"loss_type": "cispo", "epsilon_high": 20.0},
}


def check_learning_rate(args: GRPOConfig) -> None:
    """Raise a `ValueError` for a learning rate that would destroy every weight."""
    if not math.isfinite(float(args.learning_rate)):
        raise ValueError(f"`learning_rate` must be a finite number, got {args.learning_rate}.")


@dataclass
class STAPOConfig(GRPOConfig):
    r"""
    Configuration class for the [`STAPOTrainer`].

    Every field of [`~trl.GRPOConfig`] keeps its name and meaning. The defaults that differ are the settings of the
    paper ([arXiv 2602.15620](https://huggingface.co/papers/2602.15620), fifth version): `epsilon_high=0.28`,
    `warmup_steps=10` and `lr_scheduler_type="constant_with_warmup"`; `loss_type="dapo"`, `beta=0.0`,
    `learning_rate=1e-6` and `max_grad_norm=1.0` are GRPOConfig's own defaults already. With `loss_type="cispo"`,
    `epsilon_high` is a bound on the ratio itself, so set it to 5.0 there, as TRL recommends.

    Args:
        s2t_prob_threshold (`float`, *optional*, defaults to `0.002`):
            \\( \tau_p \\): only tokens whose probability under the current policy is below it can be silenced. In
            [0, 1). `0.0` switches silencing off: the trainer is then [`~trl.GRPOTrainer`] exactly.
        s2t_entropy_quantile (`float`, *optional*, defaults to `0.75`):
            q: candidates (improbable tokens of correct responses) are silenced where their entropy is below this
            quantile. In [0, 1]. `1.0` silences every candidate (the paper's FullMask), `0.0` none.
        s2t_entropy_population (`str`, *optional*, defaults to `"candidates"`):
            The tokens of the optimizer step over which the quantile is taken: `"candidates"` (fifth version of the paper)
            or `"all"` response tokens (first versions, with q = 0.8 there). `"all"` scores every response before the
            update and not only the correct ones.
        s2t_selection (`str`, *optional*, defaults to `"low_entropy"`):
            Which candidates are silenced: `"low_entropy"` is STAPO, `"high_entropy"` and `"random"` are the ablations
            of the paper and silence as many.
        token_rule (`str`, *optional*, defaults to `"s2t"`):
            The method that edits tokens: STAPO's `"s2t"`, or a sibling to compare it with, such as `"stare"`. The table in
            `stapo_trl/rules/README.md` lists them, with the loss that some of them need.
        token_rule_kwargs (`dict` or `str`, *optional*):
            Parameters of a sibling, for example `{"target_entropy": 0.5}`, as a mapping or as JSON text; those left out
            keep the published defaults. The parameters of `"s2t"` are the four fields above.
        log_tokens (`bool`, *optional*, defaults to `True`):
            Write `token_log/` in the output folder: every silenced token and a sample of the others, for
            `stapo report`. With `log_completions` they are also printed, and every tracker gets them as a table.
        token_stats_steps (`int`, *optional*, defaults to `20`):
            Optimizer steps between two with statistics: gradient norm and entropy change by quadrant, and the most
            probable alternatives of logged tokens. At least 0; `0` takes none.
        on_nonfinite (`str`, *optional*, defaults to `"raise"`):
            What happens to an optimizer step whose loss or gradient is not finite, which would destroy every weight:
            `"raise"` stops the run before it, `"skip"` skips the step, so that weights and optimizer stay as they are,
            `"warn"` takes it (DeepSpeed skips a step without a finite gradient by itself). Under fp16 an infinite
            gradient does not count: the loss scaler skips such steps, as always.

    Raises:
        `ValueError`: if one of these fields lies outside its range, or a token rule needs another loss.

    Example:

    ```python
    >>> STAPOConfig(output_dir="run", s2t_entropy_quantile=1.0, use_cpu=True, bf16=False).epsilon_high
    0.28
    ```
    """

    epsilon_high: float | None = field(
        default=0.28,
        metadata={
            "help": "Upper-bound epsilon value for clipping. The paper clips to [0.8, 1.28]. With `loss_type='cispo'` "
            "this is the bound of the ratio itself, for which 5.0 is recommended."
        },
    )
    warmup_steps: float = field(
        default=10,
        metadata={"help": "Number of warm-up steps, or a share of all steps if below 1. The paper uses 10."},
    )
    lr_scheduler_type: SchedulerType | str = field(
        default="constant_with_warmup", metadata={"help": "Learning rate schedule. The paper's is constant."}
    )
    s2t_prob_threshold: float = field(
        default=PAPER_PROB_THRESHOLD,
        metadata={
            "help": "tau_p of the paper: only tokens whose probability is below it can be silenced. In [0, 1); 0.0 "
            "switches silencing off, which is GRPO exactly."
        },
    )
    s2t_entropy_quantile: float = field(
        default=PAPER_QUANTILE,
        metadata={
            "help": "q of the paper: improbable tokens of correct responses are silenced where their entropy is below "
            "this quantile. In [0, 1]; 1.0 silences all of them (FullMask), 0.0 none."
        },
    )
    s2t_entropy_population: str = field(
        default="candidates",
        metadata={
            "help": "Tokens of the optimizer step over which the quantile is taken: 'candidates' (fifth version of the "
            "paper) or 'all' response tokens (first versions).",
            "choices": list(POPULATIONS),
        },
    )
    s2t_selection: str = field(
        default="low_entropy",
        metadata={
            "help": "Which candidates are silenced: 'low_entropy' (STAPO), or as many with 'high_entropy' or at "
            "'random' (the paper's ablations).",
            "choices": list(SELECTIONS),
        },
    )

    token_rule: str = field(
        default="s2t",
        metadata={
            "help": "Method that edits tokens: 's2t' (STAPO, with the fields s2t_*) or a sibling to compare it with.",
            "choices": list(RULES),
        },
    )
    token_rule_kwargs: dict | str | None = field(
        default=None,
        metadata={"help": "Parameters of a token rule other than 's2t', such as {\"target_entropy\": 0.5}."},
    )

    log_tokens: bool = field(
        default=True,
        metadata={
            "help": "Write the silenced tokens, and a sample of the others, to token_log/ in the output folder."
        },
    )
    token_stats_steps: int = field(
        default=20,
        metadata={
            "help": "Optimizer steps between two with statistics of gradient norm and entropy change by quadrant, and "
            "with the alternatives of logged tokens. 0 takes none."
        },
    )

    on_nonfinite: str = field(
        default="raise",
        metadata={
            "help": "What happens to an optimizer step whose loss or gradient is not finite: 'raise' stops the run, "
            "'skip' skips the step, 'warn' takes it.",
            "choices": list(ON_NONFINITE),
        },
    )

    def __post_init__(self):
        # Before the parent's checks, which may fail on something else first
        rule = make_token_rule(self)
        if rule is not None:
            check_token_rule(rule, self)
        if not (isinstance(self.token_stats_steps, int) and self.token_stats_steps >= 0):
            raise ValueError(
                f"`token_stats_steps` must be a whole number of optimizer steps, got {self.token_stats_steps!r}. "
                "0 takes no statistics."
            )
        check_learning_rate(self)
        if self.on_nonfinite not in ON_NONFINITE:
            raise ValueError(f"`on_nonfinite` must be one of {list(ON_NONFINITE)}, got {self.on_nonfinite!r}.")
        super().__post_init__()


def make_token_rule(args: GRPOConfig) -> Rule | None:
    """The rule that the settings name; `None` where `s2t_prob_threshold=0.0` switches it off."""
    try:
        parameters = args.token_rule_kwargs = read_parameters(args.token_rule_kwargs) or None
    except ValueError as error:
        raise ValueError(f"`token_rule_kwargs` {error}") from None
    s2t = {name: getattr(args, name) for name in STAPOConfig.__dataclass_fields__ if name.startswith("s2t_")}
    if args.token_rule == "s2t":
        if parameters:
            raise ValueError(
                f"`token_rule_kwargs` must be empty with `token_rule='s2t'`, got {parameters}: its parameters are the "
                f"fields {', '.join(s2t)}."
            )
        try:
            rule = S2T(**{name.removeprefix("s2t_"): value for name, value in s2t.items()})
        except ValueError as error:
            raise ValueError(str(error).replace("`", "`s2t_", 1)) from None
        return rule if args.s2t_prob_threshold > 0.0 else None
    if args.token_rule not in RULES:
        raise ValueError(f"`token_rule` must be one of {list(RULES)}, got {args.token_rule!r}.")
    for name, value in s2t.items():
        if value != STAPOConfig.__dataclass_fields__[name].default:
            raise ValueError(
                f"`{name}` belongs to `token_rule='s2t'` and would do nothing with '{args.token_rule}', got {value!r}: "
                "leave it out."
            )
    if args.token_rule == "clip_cov":  # leaves alone what the loss clips
        upper = args.epsilon if args.epsilon_high is None else args.epsilon_high
        parameters = {"epsilon": args.epsilon, "epsilon_high": upper} | (parameters or {})
    try:
        return make_rule(args.token_rule, parameters)
    except ValueError as error:
        raise ValueError(f"`token_rule_kwargs`: {error}") from None


def check_token_rule(rule: Rule, args: GRPOConfig) -> None:
    """Raises `ValueError` where the loss of these settings is not the one that the rule edits."""
    name, loss = type(rule).__name__, getattr(rule, "loss", None)
    upper = args.epsilon if args.epsilon_high is None else args.epsilon_high
    needed: dict[str, Any] = {}
    if loss == "unclipped" and not (args.loss_type in CLIPPED_LOSSES and args.epsilon >= 1 and upper >= 1000):
        needed = LOSSES[loss]
    elif loss == "unclipped" and args.delta is not None:
        needed = {"delta": None}
    elif loss == "cispo" and not (args.loss_type == "cispo" and upper > 1):
        needed = LOSSES[loss]
    elif loss is not None and args.importance_sampling_level != "token":
        needed = {"importance_sampling_level": "token"}
    elif getattr(rule, "flips_signs", False) and args.off_policy_mask_threshold is not None:
        # TRL keeps the tokens with A >= 0, of the edited advantages
        needed = {"off_policy_mask_threshold": None}
    elif isinstance(rule, TopEntropy) and args.top_entropy_quantile < 1.0:
        needed = {"top_entropy_quantile": 1.0}
    if needed:
        raise ValueError(
            f"The token rule {name} needs {', '.join(f'{key}={value!r}' for key, value in needed.items())}, got "
            f"{', '.join(f'{key}={getattr(args, key)!r}' for key in needed)}"
            + (f" (any of {', '.join(CLIPPED_LOSSES)} will do, without its clipping)." if len(needed) == 3 else ".")
        )
