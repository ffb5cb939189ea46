"""DAPO-Math-17k, the paper's training set: competition problems whose answers were rewritten to integers."""

from pathlib import Path

from datasets import Dataset, IterableDataset

from .training import load_training_set


def load_dapo(
    path: str | Path | None = None, *, repo_id: str = "BytedTsinghua-SIA/DAPO-Math-17k", **options
) -> Dataset | IterableDataset:
    r"""
    DAPO-Math-17k, every problem once.

    The published file repeats each of its problems about a hundred times (1,791,700 rows), wraps them in an instruction
    to end with `Answer: ...`, and gives a handful of them different golds in different copies. The cleaned copies
    `open-r1/DAPO-Math-17k-Processed` (`config="en"` leaves out the Chinese problems) and
    `haizhongzheng/DAPO-Math-17K-cleaned` load as well. A row of either kind:

    ```python
    {
        "data_source": "math_dapo",
        "prompt": [{"role": "user", "content": "Solve the following ...\n\nFind $1+1$.\n\nRemember to ..."}],
        "ability": "MATH",
        "reward_model": {"ground_truth": "2", "style": "rule-lighteval/MATH_v2"},
        "extra_info": {"index": "9a9b6eb4-a1cb-49d1-8c1e-62eaf2f74079"},
    }
    {"prompt": "Find $1+1$.", "solution": "2", "data_source": "math_dapo"}
    ```

    Args:
        path (`str` or `Path`, *optional*):
            A local file or folder to read instead of the hub.
        repo_id (`str`, defaults to `"BytedTsinghua-SIA/DAPO-Math-17k"`):
            Copy on the hub.
        **options:
            `config`, `revision`, `split`, `streaming`, `unusable` (`"drop"` by default), `columns`, `prompt_format` and
            `instruction`; see [`load_training_set`].

    Returns:
        `Dataset` or `IterableDataset`: columns `prompt`, `solution`, `problem_id` and `source`.
    """
    return load_training_set("dapo-math-17k", repo_id, path, **options)
