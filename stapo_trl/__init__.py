"""STAPO for TRL: GRPO that silences spurious tokens (arXiv 2602.15620)."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING


if TYPE_CHECKING:
    from .observe.alarm import EntropyAlarm
    from .trainer.stapo import STAPOTrainer
    from .trainer.stapo_config import STAPOConfig

__version__ = "0.1.0.dev0"
__all__ = ["EntropyAlarm", "STAPOConfig", "STAPOTrainer", "__version__"]


def load_lazily(package: str, homes: Mapping[str, str]) -> Callable[[str], object]:
    """
    The `__getattr__` of a package whose public names are imported on first use: torch and TRL take seconds.

    Args:
        package (`str`):
            Name of the package.
        homes (`Mapping[str, str]`):
            Public names, and the module in the package that each lives in.

    Returns:
        `Callable`: raises `AttributeError`, with the known names, for any other name.
    """

    def __getattr__(name: str) -> object:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}; it has {', '.join(sorted(homes))}")
        return getattr(import_module(f".{homes[name]}", package), name)

    return __getattr__


# Reward workers and `stapo --help` import this package without TRL
__getattr__ = load_lazily(
    __name__,
    {"EntropyAlarm": "observe.alarm", "STAPOConfig": "trainer.stapo_config", "STAPOTrainer": "trainer.stapo"},
)
