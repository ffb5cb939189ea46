"""Reward functions for mathematics, in TRL's calling convention. Importing this package imports neither torch nor trl."""

from .. import load_lazily


_HOMES = {
    "LLMJudge": "judge",
    "MathAccuracyReward": "math_accuracy",
    "Verdict": "verifier.verdict",
    "Verifier": "verifier.verdict",
    "boxed_format_reward": "format",
    "final_answer": "verifier.answer",
    "get_soft_overlong_punishment": "overlong",
    "grade": "verifier.verdict",
    "math_accuracy_reward": "math_accuracy",
    "reasoning_gym_reward": "reasoning_gym",
    "strict_math_accuracy_reward": "math_accuracy",
    "think_format_reward": "format",
    "warn_if_void": "overlong",
}
__all__ = sorted(_HOMES)
__getattr__ = load_lazily(__name__, _HOMES)


def __dir__() -> list[str]:
    return __all__
