"""MATH: competition problems of seven subjects, without those of MATH-500."""

from pathlib import Path

from datasets import Dataset, IterableDataset

from ..problems import logger
from .overlap import benchmark_fingerprints
from .training import load_training_set


def load_math(
    path: str | Path | None = None, *, repo_id: str = "EleutherAI/hendrycks_math", **options
) -> Dataset | IterableDataset:
    r"""
    MATH, with the last box of the worked solution as the gold answer, and without the problems of MATH-500.

    The first repositories (`hendrycks/competition_math`, `lighteval/MATH`) are gone. The default has 7,500 rows for
    training and 5,000 for testing, in seven configurations that are all loaded. `DigitalLearningGmbH/MATH-lighteval`,
    `nlile/hendrycks-MATH-benchmark` and `qwedsacf/competition_math` load as well; the last two mix test problems into
    their training split. A row:

    ```python
    {"problem": "What is $1+1$?", "level": "Level 1", "type": "Algebra", "solution": "We add: $1+1=\\boxed{2}$."}
    ```

    Args:
        path (`str` or `Path`, *optional*):
            A local file or folder to read instead of the hub.
        repo_id (`str`, defaults to `"EleutherAI/hendrycks_math"`):
            Copy on the hub.
        **options:
            `config` (one subject, such as `"algebra"`), `revision`, `split` (`"train"` or `"test"`), `streaming`,
            `unusable` (`"drop"` by default), `columns`, `prompt_format` and `instruction`; see [`load_training_set`].

    Returns:
        `Dataset` or `IterableDataset`: columns `prompt`, `solution`, `problem_id` and `source`.
    """
    problems = load_training_set("math", repo_id, path, **options)
    math500 = benchmark_fingerprints()["math500"]
    clean = problems.filter(lambda name: name.removeprefix("math-") not in math500, input_columns="problem_id")
    if isinstance(problems, Dataset) and len(clean) < len(problems):
        logger.warning("math: left out %d problems of MATH-500.", len(problems) - len(clean))
        clean.info.description += f", {len(clean):,} without MATH-500"
    return clean
