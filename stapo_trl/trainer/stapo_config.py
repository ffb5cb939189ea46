"""Configuration of [`STAPOTrainer`]: GRPO's own, with seven more fields and the paper's defaults."""

import math
from dataclasses import dataclass, field

from transformers import SchedulerType
from trl import GRPOConfig

from ..rules.s2t import PAPER_PROB_THRESHOLD, PAPER_QUANTILE, POPULATIONS, S2T, SELECTIONS


ON_NONFINITE = ("raise", "skip", "warn")


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
        `ValueError`: if one of these fields lies outside its range.

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
        try:
            S2T(self.s2t_prob_threshold, self.s2t_entropy_quantile, self.s2t_entropy_population, self.s2t_selection)
        except ValueError as error:
            raise ValueError(str(error).replace("`", "`s2t_", 1)) from None
        if not (isinstance(self.token_stats_steps, int) and self.token_stats_steps >= 0):
            raise ValueError(
                f"`token_stats_steps` must be a whole number of optimizer steps, got {self.token_stats_steps!r}. "
                "0 takes no statistics."
            )
        check_learning_rate(self)
        if self.on_nonfinite not in ON_NONFINITE:
            raise ValueError(f"`on_nonfinite` must be one of {list(ON_NONFINITE)}, got {self.on_nonfinite!r}.")
        super().__post_init__()
