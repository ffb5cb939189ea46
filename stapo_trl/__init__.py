"""STAPO for TRL: GRPO that silences spurious tokens (arXiv 2602.15620)."""

from typing import TYPE_CHECKING

from ._lazy import load_lazily
from ._version import __version__


if TYPE_CHECKING:
    from .entropy_alarm import EntropyAlarm
    from .stapo_config import STAPOConfig
    from .stapo_trainer import STAPOTrainer

__all__ = ["EntropyAlarm", "STAPOConfig", "STAPOTrainer", "__version__"]

# Reward workers and `stapo --help` import this package without TRL
__getattr__ = load_lazily(
    __name__, {"EntropyAlarm": "entropy_alarm", "STAPOConfig": "stapo_config", "STAPOTrainer": "stapo_trainer"}
)
