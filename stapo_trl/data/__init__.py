"""Data sets, one file each. All have the columns `prompt`, `solution` (text), `problem_id` and `source`."""

from importlib import import_module


_HOMES = {
    "BENCHMARKS": "benchmarks",
    "BOXED_INSTRUCTION": "prompt",
    "THINK_INSTRUCTION": "prompt",
    "format_prompt": "prompt",
    "load_arithmetic": "arithmetic",
    "load_benchmark": "benchmarks",
    "load_problems": "problems",
}
__all__ = sorted(_HOMES)


def __getattr__(name: str):
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has {', '.join(__all__)}")
    return getattr(import_module(f".{_HOMES[name]}", __name__), name)


def __dir__() -> list[str]:
    return __all__
