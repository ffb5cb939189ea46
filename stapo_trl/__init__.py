"""STAPO for TRL: GRPO that silences spurious tokens (arXiv 2602.15620)."""

from typing import TYPE_CHECKING

from ._version import __version__


if TYPE_CHECKING:
    from .entropy_alarm import EntropyAlarm
    from .stapo_config import STAPOConfig
    from .stapo_trainer import STAPOTrainer

__all__ = ["EntropyAlarm", "STAPOConfig", "STAPOTrainer", "__version__"]


def __getattr__(name: str):
    # Importing TRL takes seconds: reward workers and `stapo --help` import this package without it
    if name == "EntropyAlarm":
        from .entropy_alarm import EntropyAlarm

        return EntropyAlarm
    if name == "STAPOConfig":
        from .stapo_config import STAPOConfig

        return STAPOConfig
    if name == "STAPOTrainer":
        from .stapo_trainer import STAPOTrainer

        return STAPOTrainer
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
