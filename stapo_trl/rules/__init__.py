"""Which tokens a method keeps, and with which advantage: one file a method. `README.md` holds the table of them."""

from collections.abc import Mapping
from dataclasses import fields
from importlib import import_module
from typing import TYPE_CHECKING, Any


if TYPE_CHECKING:
    from .tokens import Rule

# Name of a rule in settings: the module and class that it lives in
RULES = {
    "s2t": ("s2t", "S2T"),
    "stare": ("stare", "STARE"),
    "top_entropy": ("top_entropy", "TopEntropy"),
    "clip_cov": ("reweighting.clip_cov", "ClipCov"),
    "low_probability": ("reweighting.low_probability", "LowProbability"),
    "entropy_driven": ("reweighting.entropy_driven", "EntropyDriven"),
    "entropy_shaping": ("reweighting.entropy_shaping", "EntropyShaping"),
    "kl_cov": ("unclipped.kl_cov", "KLCov"),
    "ce_gppo": ("unclipped.ce_gppo", "CEGPPO"),
    "aspo": ("unclipped.aspo", "ASPO"),
    "dppo": ("unclipped.dppo", "DPPO"),
}


def make_rule(name: str, parameters: Mapping[str, Any] | None = None) -> "Rule":
    """
    A token rule by its name.

    Args:
        name (`str`):
            One of `RULES`.
        parameters (`Mapping`, *optional*):
            Fields of the rule's dataclass; those left out keep the published defaults.

    Returns:
        [`~stapo_trl.rules.tokens.Rule`].

    Raises:
        `ValueError`: for an unknown rule, an unknown parameter, or a value that is out of range or of another type.

    Example:

    ```python
    >>> make_rule("top_entropy", {"share": 0.1})
    TopEntropy(share=0.1, divide_by_all=False)
    ```
    """
    if name not in RULES:
        raise ValueError(f"There is no token rule {name!r}; there are {', '.join(RULES)}.")
    module, class_name = RULES[name]
    rule_class = getattr(import_module(f".{module}", __name__), class_name)
    known, parameters = [field.name for field in fields(rule_class)], parameters or {}
    for parameter in parameters:
        if parameter not in known:
            raise ValueError(f"`{parameter}` is no parameter of the rule '{name}': {describe(known)}.")
    try:
        return rule_class(**parameters)
    except ValueError as error:
        raise ValueError(f"{error} (Rule '{name}': {describe(known)}.)") from None


def describe(parameters: list[str]) -> str:
    return f"it has {', '.join(parameters)}" if parameters else "it has none"
