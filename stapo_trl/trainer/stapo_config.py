"""Configuration of [`STAPOTrainer`]: GRPO's own, with seven more fields and the paper's defaults."""

from dataclasses import dataclass, field

from transformers import SchedulerType
from trl import GRPOConfig

from ..rules.s2t import PAPER_QUANTILE


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
            The tokens of the mini-batch over which the quantile is taken: `"candidates"` (fifth version of the paper)
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
            `"raise"` stops the run before it, `"skip"` leaves the step out, so that weights and optimizer stay as they
            are, `"warn"` takes it (DeepSpeed leaves a step without a finite gradient out by itself). Under fp16 an
            infinite gradient does not count: the loss scaler leaves such steps out, as always.

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
        default=0.002,
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
            "help": "Tokens of the mini-batch over which the quantile is taken: 'candidates' (fifth version of the "
            "paper) or 'all' response tokens (first versions).",
            "choices": ["candidates", "all"],
        },
    )
    s2t_selection: str = field(
        default="low_entropy",
        metadata={
            "help": "Which candidates are silenced: 'low_entropy' (STAPO), or as many with 'high_entropy' or at "
            "'random' (the paper's ablations).",
            "choices": ["low_entropy", "high_entropy", "random"],
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
            "'skip' leaves the step out, 'warn' takes it.",
            "choices": ["raise", "skip", "warn"],
        },
    )

    def __post_init__(self):
        # Before the parent's checks, which may fail on something else first
        if not (isinstance(self.s2t_prob_threshold, (int, float)) and 0.0 <= self.s2t_prob_threshold < 1.0):
            raise ValueError(
                f"`s2t_prob_threshold` (tau_p) must be a number in [0, 1), got {self.s2t_prob_threshold!r}. The paper "
                "uses 0.002; 0.0 switches silencing off."
            )
        if not (isinstance(self.s2t_entropy_quantile, (int, float)) and 0.0 <= self.s2t_entropy_quantile <= 1.0):
            raise ValueError(
                f"`s2t_entropy_quantile` (q) must be a number in [0, 1], got {self.s2t_entropy_quantile!r}. The paper "
                "uses 0.75 (a share, not a percentage)."
            )
        if not (isinstance(self.token_stats_steps, int) and self.token_stats_steps >= 0):
            raise ValueError(
                f"`token_stats_steps` must be a whole number of optimizer steps, got {self.token_stats_steps!r}. "
                "0 takes no statistics."
            )
        for name in ("s2t_entropy_population", "s2t_selection", "on_nonfinite"):
            choices = self.__dataclass_fields__[name].metadata["choices"]
            if getattr(self, name) not in choices:
                raise ValueError(f"`{name}` must be one of {choices}, got {getattr(self, name)!r}.")
        super().__post_init__()
