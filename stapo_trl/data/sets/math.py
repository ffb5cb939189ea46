"""MATH: competition problems of seven subjects, without those of MATH-500."""

from pathlib import Path

from datasets import Dataset, IterableDataset

from ..problems import load_problems, logger
from ..reading.source import open_rows
from .overlap import benchmark_fingerprints


def load_math(
    path: str | Path | None = None,
    *,
    repo_id: str = "EleutherAI/hendrycks_math",
    config: str | None = None,
    revision: str | None = None,
    split: str | None = None,
    streaming: bool = False,
    unusable: str = "drop",
    **options,
) -> Dataset | IterableDataset:
    r"""
    MATH, with the last box of the worked solution as the gold answer, and without the problems of MATH-500.

    The first repositories (`hendrycks/competition_math`, `lighteval/MATH`) are gone. The default here has 7,500 rows
    for training and 5,000 for testing, in seven configurations that are all loaded. `DigitalLearningGmbH/MATH-lighteval`,
    `nlile/hendrycks-MATH-benchmark` and `qwedsacf/competition_math` load as well; the last two mix test problems into
    their training split. A row:

    ```python
    {"problem": "What is $1+1$?", "level": "Level 1", "type": "Algebra", "solution": "We add: $1+1=\\boxed{2}$."}
    ```

    Args:
        path (`str` or `Path`, *optional*):
            A local file or folder in place of the hub.
        repo_id (`str`, defaults to `"EleutherAI/hendrycks_math"`):
            Copy on the hub.
        config (`str`, *optional*):
            Its configuration, such as `"algebra"`; all by default.
        revision (`str`, *optional*):
            Branch, tag or commit.
        split (`str`, *optional*):
            `"train"`, which is the default, or `"test"`.
        streaming (`bool`, defaults to `False`):
            Whether rows are read while they are iterated over.
        unusable (`str`, defaults to `"drop"`):
            What becomes of rows that cannot be used; see [`load_problems`].
        **options:
            `prompt_format`, `instruction` and `columns` of [`load_problems`].

    Returns:
        `Dataset` or `IterableDataset`: columns `prompt`, `solution`, `problem_id` and `source`.
    """
    rows = open_rows(repo_id, path, config, revision, split, streaming=streaming)
    problems = load_problems(rows, "math", unusable=unusable, **options)
    math500 = benchmark_fingerprints()["math500"]
    clean = problems.filter(lambda name: name.removeprefix("math-") not in math500, input_columns="problem_id")
    if isinstance(problems, Dataset) and len(clean) < len(problems):
        logger.warning("math: left out %d problems of MATH-500.", len(problems) - len(clean))
        clean.info.description += f", {len(clean):,} without MATH-500"
    return clean
