"""An experiment: the task, the training, the methods and the seeds, from a YAML file beside this one."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import yaml

from ...arithmetic.warm_start import WarmStart
from ...rules import RULES, make_rule
from ...trainer.stapo_config import LOSSES, STAPOConfig
from ..recipes import closest, load_recipe
from ..recipes.parser import RecipeParser


METHODS = [
    "grpo",
    "justrl",
    "20-entropy",
    "justrl-fullmask",
    "stapo",
    "ablation-random",
    "ablation-high-entropy",
    "stare",
]
RULES_ALONE = [name for name in RULES if name not in ("s2t", "stare", "top_entropy")]  # methods without a recipe
METHODS += RULES_ALONE
PAPER = "qwen3-1.7b-stapo"  # the recipe that the others differ from


def get_differences(method: str) -> dict:
    """
    What a method changes in STAPO's training: the lines in which its recipe differs from the paper's, or a token rule
    with the loss that it needs.

    Example:

    ```python
    >>> get_differences("grpo")
    {'s2t_entropy_quantile': 0.0, 'loss_type': 'grpo', 'epsilon_high': 0.2}
    ```
    """
    if method == "stapo":
        return {}
    if method in RULES_ALONE:
        return {"token_rule": method, **LOSSES.get(getattr(make_rule(method), "loss", None), {})}
    paper, recipe = load_recipe(PAPER), load_recipe(method)
    return {name: value for name, value in recipe.items() if paper.get(name) != value and name != "output_dir"}


@dataclass(frozen=True)
class Experiment:
    """
    One comparison: every method from the same warm start, for several seeds.

    Each seed has a warm start, which its methods share. `warm_start` and `training` hold fields of [`WarmStart`] and
    [`STAPOConfig`], without the seed and the output folder; `heldout_every` counts optimizer steps.
    """

    warm_start: dict
    training: dict
    methods: list[str]
    num_seeds: int
    heldout_every: int

    def __post_init__(self):
        for kind, names, known in (
            ("method", self.methods, METHODS),
            ("field of the warm start", self.warm_start, WarmStart.__dataclass_fields__.keys() - {"seed"}),
            ("field of STAPOConfig", self.training, STAPOConfig.__dataclass_fields__.keys() - {"output_dir", "seed"}),
        ):
            for name in names:
                if name not in known:
                    raise ValueError(f"There is no {kind} '{name}': did you mean '{closest(name, known)}'?")
        if self.num_seeds < 1 or not self.methods:
            raise ValueError(
                f"An experiment needs a method and a seed, got {self.methods or 'none'} and {self.num_seeds} seeds."
            )

    def get_warm_start(self, seed: int) -> WarmStart:
        return WarmStart(**self.warm_start, seed=seed)

    def get_config(self, method: str, seed: int, output_dir: Path) -> STAPOConfig:
        """Settings of the training of one run."""
        return STAPOConfig(output_dir=str(output_dir), seed=seed, **{**self.training, **get_differences(method)})


def load_experiment(scale: str, overrides: Sequence[str] = (), **changes) -> Experiment:
    """
    The experiment of a scale, `"cpu"` or `"gpu"`, with other values of its fields.

    An override `name=value` sets a field of the training, `warm_start.name=value` one of the warm start;
    `heldout_every=value` is a field of the experiment.

    ```python
    >>> load_experiment("cpu", ["max_steps=8"], num_seeds=1).training["max_steps"]
    8
    ```
    """
    experiment = Experiment(**yaml.safe_load((Path(__file__).parent / f"{scale}.yaml").read_text()))
    warm_start, training = {}, {}
    for override in overrides:
        name, equals, value = override.partition("=")
        if not equals:
            raise ValueError(f"'{override}' sets nothing: write name=value.")
        if name == "heldout_every":
            changes[name] = int(value)
        elif name.startswith("warm_start."):
            warm_start[name.removeprefix("warm_start.")] = value
        else:
            training[name] = value
    replace(experiment, warm_start=warm_start, training=training)  # refuses unknown names
    return replace(
        experiment,
        warm_start=experiment.warm_start | RecipeParser((WarmStart,), "stapo experiment").read_overrides(warm_start),
        training=experiment.training | RecipeParser((STAPOConfig,), "stapo experiment").read_overrides(training),
        **changes,
    )
