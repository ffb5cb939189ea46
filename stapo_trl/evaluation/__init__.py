"""Evaluation: N samples per problem of the six benchmarks, their metrics with intervals, and the comparison of two runs."""

from importlib import import_module


_HOMES = {
    "BenchmarkCallback": "callback",
    "SamplingSettings": "settings",
    "TransformersSampler": "sampler",
    "VLLMSampler": "vllm_sampler",
    "avg_at_n": "metrics",
    "compare": "comparison",
    "evaluate": "run",
    "interval": "metrics",
    "maj_at_k": "metrics",
    "pass_at_k": "metrics",
}
__all__ = sorted(_HOMES)


def __getattr__(name: str):
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has {', '.join(__all__)}")
    return getattr(import_module(f".{_HOMES[name]}", __name__), name)


def __dir__() -> list[str]:
    return __all__
