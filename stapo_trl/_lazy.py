"""Packages whose public names are imported on first use: torch and TRL take seconds."""

from collections.abc import Callable, Mapping
from importlib import import_module


def load_lazily(package: str, homes: Mapping[str, str]) -> Callable[[str], object]:
    """
    The `__getattr__` of a package.

    Args:
        package (`str`):
            Its name.
        homes (`Mapping[str, str]`):
            Public names, and the module in the package that each lives in.

    Returns:
        `Callable`: raises `AttributeError`, with the names that there are, for another one.
    """

    def __getattr__(name: str) -> object:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}; it has {', '.join(sorted(homes))}")
        return getattr(import_module(f".{homes[name]}", package), name)

    return __getattr__
