"""Evaluation: N samples for each problem, metrics with intervals, and the comparison of two results. See README.md."""

from .. import load_lazily


_HOMES = {
    "BenchmarkCallback": "callback",
    "SamplingSettings": "sampling.settings",
    "TransformersSampler": "sampling.transformers_sampler",
    "VLLMSampler": "sampling.vllm_sampler",
    "avg_at_n": "metrics",
    "compare": "comparison",
    "evaluate": "run",
    "interval": "metrics",
    "maj_at_k": "metrics",
    "pass_at_k": "metrics",
}
__all__ = sorted(_HOMES)
__getattr__ = load_lazily(__name__, _HOMES)


def __dir__() -> list[str]:
    return __all__
