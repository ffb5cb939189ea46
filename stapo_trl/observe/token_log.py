"""
The token log of a run: which tokens were silenced, and what they looked like, in Parquet files under `token_log/`.

Each process writes shards of its own, `tokens-{first step}-{rank}.parquet` and `completions-{first step}-{rank}.parquet`.
A shard appears under its name when it is whole, so a crash loses at most the rows that were not written yet. A row takes
about a hundred bytes. Logging changes no weight of the run.
"""

import os
import warnings
from collections import deque
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from transformers import TrainerCallback


FOLDER = "token_log"
MAX_COMPLETIONS = 8  # in a shard

# One row per logged token: every silenced candidate, and samples of kept candidates, of other edited tokens and of all others
TOKENS = pa.schema(
    {
        "step": pa.int32(),  # optimizer step whose update the token was part of, from 1
        "completion_id": pa.string(),  # unique in the run
        "problem_id": pa.string(),
        "position": pa.int32(),  # in the completion, from 0
        "token_id": pa.int32(),
        "token": pa.string(),
        "before": pa.string(),  # text around the token
        "after": pa.string(),
        "prob": pa.float32(),  # of the current policy, after the sampling temperature
        "entropy": pa.float32(),  # nats
        "entropy_threshold": pa.float32(),  # nats, of the token's optimizer step; null if that had no candidate
        "advantage": pa.float32(),  # of the response
        "edited_advantage": pa.float32(),  # what a rule made of it for this token; null under rules that change none
        "reward": pa.float32(),
        "ratio": pa.float32(),  # pi_theta / pi_old
        "gradient_norm": pa.float32(),  # of the token's loss term with respect to its logits, before silencing; or null
        "candidate": pa.bool_(),  # improbable, in a response with a positive advantage
        "silenced": pa.bool_(),
        "top_tokens": pa.list_(pa.string()),  # most probable tokens of the position, best first; or null
        "top_probs": pa.list_(pa.float32()),
    }
)

# One row per logged completion
COMPLETIONS = pa.schema(
    {
        "step": pa.int32(),
        "completion_id": pa.string(),
        "problem_id": pa.string(),
        "prompt": pa.string(),
        "tokens": pa.list_(pa.string()),
        "probs": pa.list_(pa.float32()),
        "entropies": pa.list_(pa.float32()),
        "silenced": pa.list_(pa.bool_()),
        "advantage": pa.float32(),
        "reward": pa.float32(),
    }
)
SCHEMAS = {"tokens": TOKENS, "completions": COMPLETIONS}


class TokenLog(TrainerCallback):
    """
    Writes the token log of one process. The trainer writes a shard before each checkpoint is complete, so that a resumed
    run has every row before it; as a callback the log drops the rows of the steps that are taken again.

    Args:
        metadata (`dict[str, str]`, *optional*):
            Settings of the run, kept in each file: `prob_threshold`, `entropy_quantile`, `selection`, `rule`, `model`.
        max_rows (`int`, *optional*, defaults to `5000`):
            Tokens after which a shard is written.

    Attributes:
        recent (`deque[dict]`): the last rows of tokens.
    """

    def __init__(self, run_dir: str | Path, rank: int = 0, metadata: dict[str, str] | None = None, max_rows=5000):
        self.folder, self.rank, self.metadata, self.max_rows = Path(run_dir) / FOLDER, rank, metadata or {}, max_rows
        self.rows = {name: [] for name in SCHEMAS}
        self.recent = deque(maxlen=200)
        self.failed = False

    def add(self, tokens: list[dict], completions: list[dict]) -> None:
        """
        Add the rows of one step. A shard keeps a few of its completions, preferably late ones with silenced tokens.

        Args:
            tokens, completions (`list[dict]`):
                Rows with the columns of [`TOKENS`] and [`COMPLETIONS`]; missing ones are null.
        """
        self.recent += tokens
        if self.failed:
            return
        self.rows["tokens"] += tokens
        completions = sorted(
            self.rows["completions"] + completions, key=lambda row: (any(row["silenced"]), row["step"])
        )
        self.rows["completions"] = completions[-MAX_COMPLETIONS:]
        if len(self.rows["tokens"]) >= self.max_rows:
            self.write()

    def write(self) -> None:
        """Write the rows so far as one shard. A full disk ends the log with a warning, not the run."""
        for name, rows in self.rows.items():
            if not rows or self.failed:
                continue
            path = self.folder / f"{name}-{min(row['step'] for row in rows):08d}-{self.rank:05d}.parquet"
            unfinished = path.with_suffix(".tmp")
            try:
                self.folder.mkdir(parents=True, exist_ok=True)
                table = pa.Table.from_pylist(rows, SCHEMAS[name].with_metadata(self.metadata))
                pq.write_table(table, unfinished, compression="zstd")
                os.replace(unfinished, path)
            except OSError as error:
                self.failed = True
                warnings.warn(
                    f"The token log ends here and training goes on: {self.folder} is not writable ({error})."
                )
        self.rows = {name: [] for name in SCHEMAS}

    def on_train_begin(self, args, state, control, **kwargs):
        self.recent.clear()
        self.rows = {name: [] for name in SCHEMAS}
        if state.is_world_process_zero:  # the shards of every process, before any of them writes
            for path in list_shards(self.folder):
                if first_step(path) > state.global_step:
                    path.unlink(missing_ok=True)

    def on_train_end(self, args, state, control, **kwargs):
        self.write()


def first_step(path: Path) -> int:
    return int(path.name.split("-")[1])


def list_shards(folder: Path, name: str = "*") -> list[Path]:
    """Finished shards of a token log, in the order of their steps."""
    return sorted(folder.glob(f"{name}-{'[0-9]' * 8}-{'[0-9]' * 5}.parquet"))


def read_token_log(run_dir: str | Path, name: str = "tokens") -> pa.Table:
    """
    The token log of a run, all processes together, in the order of steps.

    Args:
        run_dir (`str` or `Path`):
            The run's folder. Without a token log the table is empty.
        name (`str`, defaults to `"tokens"`):
            `"tokens"` or `"completions"`.

    Returns:
        `pyarrow.Table`: with the columns of [`TOKENS`] or [`COMPLETIONS`]; the settings stand in its schema's metadata.

    Raises:
        `ValueError`: naming a shard that is damaged.
    """
    tables = [_read_shard(path, SCHEMAS[name]) for path in list_shards(Path(run_dir) / FOLDER, name)]
    return pa.concat_tables(tables) if tables else SCHEMAS[name].empty_table()


def _read_shard(path: Path, schema: pa.Schema) -> pa.Table:
    """A shard in the columns of this version; those that another version did not write are null."""
    try:
        table = pq.read_table(path, partitioning=None)
        columns = [
            table[field.name].cast(field.type)
            if field.name in table.column_names
            else pa.nulls(len(table), field.type)
            for field in schema
        ]
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"The token log cannot be read: {path} is damaged ({error}).") from error
    return pa.Table.from_arrays(columns, schema=schema.with_metadata(table.schema.metadata))
