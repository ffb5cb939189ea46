"""DAPO-Math-17k: competition problems whose answers were rewritten to integers, the paper's training set."""

from pathlib import Path

from datasets import Dataset, IterableDataset

from ..problems import load_problems
from ..reading.source import open_rows


def load_dapo(
    path: str | Path | None = None,
    *,
    repo_id: str = "BytedTsinghua-SIA/DAPO-Math-17k",
    config: str | None = None,
    revision: str | None = None,
    split: str | None = None,
    streaming: bool = False,
    unusable: str = "drop",
    **options,
) -> Dataset | IterableDataset:
    r"""
    DAPO-Math-17k, every problem once.

    The published file repeats each of its problems about a hundred times (1,791,700 rows), wraps them in an instruction
    to end with `Answer: ...`, and gives a handful of them different golds in different copies. A row of it, and one of
    the cleaned copies `open-r1/DAPO-Math-17k-Processed` and `haizhongzheng/DAPO-Math-17K-cleaned`, which load as well:

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
            A local file or folder in place of the hub.
        repo_id (`str`, defaults to `"BytedTsinghua-SIA/DAPO-Math-17k"`):
            Copy on the hub.
        config (`str`, *optional*):
            Its configuration: `"en"` of the Processed copy leaves out the Chinese problems.
        revision (`str`, *optional*):
            Branch, tag or commit.
        split (`str`, *optional*):
            Split; every copy has one, `train`.
        streaming (`bool`, defaults to `False`):
            Whether rows are read while they are iterated over; repeats stay then.
        unusable (`str`, defaults to `"drop"`):
            What becomes of rows that cannot be used; see [`load_problems`].
        **options:
            `prompt_format`, `instruction` and `columns` of [`load_problems`].

    Returns:
        `Dataset` or `IterableDataset`: columns `prompt`, `solution`, `problem_id` and `source`.
    """
    rows = open_rows(repo_id, path, config, revision, split, streaming=streaming)
    return load_problems(rows, "dapo-math-17k", unusable=unusable, **options)
