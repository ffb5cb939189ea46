"""Data sets, one file each. All have the columns `prompt`, `solution` (text), `problem_id` and `source`."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from .. import load_lazily


_HOMES = {
    "BENCHMARKS": "sets.benchmarks",
    "BOXED_INSTRUCTION": "prompt",
    "THINK_INSTRUCTION": "prompt",
    "format_prompt": "prompt",
    "load_arithmetic": ".arithmetic.problems",
    "load_benchmark": "sets.benchmarks",
    "load_dapo": "sets.dapo",
    "load_gsm8k": "sets.gsm8k",
    "load_local": "sets.local",
    "load_math": "sets.math",
    "load_problems": "problems",
    "load_reasoning_gym": "sets.reasoning_gym",
}
NAMES = {"dapo-math-17k": "load_dapo", "gsm8k": "load_gsm8k", "math": "load_math"}  # for `--dataset_name`
__all__ = sorted([*_HOMES, "NAMES", "find_loader"])
__getattr__ = load_lazily(__name__, _HOMES)


def find_loader(name: str) -> Callable | None:
    """
    The loader of a training set.

    Args:
        name (`str`):
            A short name of `NAMES`, or the path of a file.

    Returns:
        `Callable`: takes `config`, `split`, `columns`, `prompt_format`, `streaming` and `unusable`; `None` for any other
        name.

    Example:

    ```python
    >>> find_loader("gsm8k").__name__, find_loader("openai/gsm8k")
    ('load_gsm8k', None)
    ```
    """
    if name in NAMES:
        return __getattr__(NAMES[name])
    return partial(__getattr__("load_local"), name) if Path(name).is_file() else None


def __dir__() -> list[str]:
    return __all__
