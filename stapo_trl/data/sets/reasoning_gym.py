"""reasoning-gym: generated tasks with their own scorers; nothing is downloaded."""

import json
import logging

from datasets import Dataset
from tqdm.auto import tqdm

from ...rewards.reasoning_gym import have_full_marks, read_answer
from ..prompt import BOXED_INSTRUCTION, PromptFormat, check_format, format_prompt


logger = logging.getLogger(__name__)
CHECK_SECONDS = 600.0


def load_reasoning_gym(
    task: str,
    size: int = 1000,
    seed: int = 0,
    prompt_format: PromptFormat = "chat",
    instruction: str | None = BOXED_INSTRUCTION,
    **config,
) -> Dataset:
    r"""
    Problems of one task of reasoning-gym, to train on with `reward_funcs=reasoning_gym_reward`.

    Args:
        task (`str`):
            Name of the task, such as `"chain_sum"`.
        size (`int`, defaults to `1000`):
            Problems to generate; repeated questions are dropped.
        seed (`int`, defaults to `0`):
            Seed of the generator.
        prompt_format (`str`, defaults to `"chat"`):
            `"chat"` or `"plain"`; see [`format_prompt`].
        instruction (`str`, *optional*, defaults to `BOXED_INSTRUCTION`):
            Appended to the question.
        **config:
            Options of the task, such as `min_digits=2`.

    Returns:
        `Dataset`: columns `prompt`, `solution` (a right answer, empty if the task gives none), `problem_id`, `source`,
        and `entry`, which holds everything for the scorer, as JSON since every task has metadata of another shape.

    Raises:
        `ImportError`: without reasoning-gym.
        `ValueError`: for an unknown task, and for one whose scorer accepts none of its own answers. (Single problems
            whose own answer it does not accept in a box are dropped.)

    Example:

    ```python
    load_reasoning_gym("chain_sum", size=1, prompt_format="plain", instruction=None)[0]
    # {'prompt': 'State the final answer to the following arithmetic problem: 4 + 3 =', 'solution': '7',
    #  'problem_id': 'chain_sum-0-0', 'source': 'chain_sum', 'entry': '{"question": ...}'}
    ```
    """
    check_format(prompt_format)
    try:
        import reasoning_gym
        from reasoning_gym.factory import DATASETS
    except ImportError as error:
        raise ImportError('reasoning-gym is missing: pip install "stapo-trl[gym]".') from error
    if task not in DATASETS:
        raise ValueError(f"There is no task {task!r} in reasoning-gym, only {sorted(DATASETS)}.")
    rows = {}  # by question, to drop repeats and keep the order
    entries = reasoning_gym.create_dataset(task, size=size, seed=seed, **config)
    for index in tqdm(range(size), desc=f"Generating {task}", disable=None):
        entry = entries[index]
        rows.setdefault(
            entry["question"],
            {
                "prompt": format_prompt(entry["question"], prompt_format, instruction),
                "solution": entry["answer"] or "",
                "problem_id": f"{task}-{seed}-{index}",
                "source": task,
                "entry": json.dumps(entry, default=str),
            },
        )
    # A task without an answer of its own has only its scorer
    answers = [read_answer(f"\\boxed{{{row['solution']}}}") for row in rows.values()]
    marks = have_full_marks(answers, [row["entry"] for row in rows.values()], CHECK_SECONDS)
    usable = [row for row, right in zip(rows.values(), marks, strict=True) if right or not row["solution"]]
    report = f"{task}: {size} generated, {size - len(rows)} repeated, {len(rows) - len(usable)} not accepted in a box"
    if not usable:
        raise ValueError(f"{report}: the scorer of this task compares what JSON cannot hold, choose another task.")
    logger.log(logging.INFO if len(usable) == size else logging.WARNING, "%s, %d problems.", report, len(usable))
    return Dataset.from_list(usable)
