"""Parameters of token rules: read from a mapping or from JSON, and checked with one sentence each."""

import json
import operator
from collections.abc import Mapping
from typing import Any


BOUNDS = {"above": operator.gt, "at_least": operator.ge, "below": operator.lt, "at_most": operator.le}


def check_number(rule: object, name: str, **bounds: float) -> None:
    """Raises `ValueError` unless this field of a rule is a number within `above`, `at_least`, `below` and `at_most`."""
    value = getattr(rule, name)
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool) and value == value
    if not (is_number and all(BOUNDS[bound](value, limit) for bound, limit in bounds.items())):
        text = " and ".join(f"{bound.replace('_', ' ')} {limit:g}" for bound, limit in bounds.items())
        raise ValueError(f"`{name}` must be a number{' ' * bool(text)}{text}, got {value!r}.")


def check_choice(rule: object, name: str, choices: tuple) -> None:
    if getattr(rule, name) not in choices:
        raise ValueError(f"`{name}` must be one of {list(choices)}, got {getattr(rule, name)!r}.")


def check_flag(rule: object, name: str) -> None:
    if not isinstance(getattr(rule, name), bool):
        raise ValueError(f"`{name}` must be true or false, got {getattr(rule, name)!r}.")


def read_parameters(given: Mapping[str, Any] | str | None) -> dict[str, Any]:
    """A mapping, or JSON text of one, as a dictionary; `ValueError` for anything else."""
    value = given
    if isinstance(given, str):
        try:
            value = json.loads(given)
        except json.JSONDecodeError:
            pass
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise ValueError(f'must be a mapping from names to values (as text: JSON, {{"share": 0.2}}), got {given!r}.')
    return dict(value)
