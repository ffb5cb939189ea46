"""Run folders with made-up numbers, for tests and the benchmark of the report."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from stapo_trl.observe.dynamics import QUADRANTS
from stapo_trl.observe.token_log import COMPLETIONS, FOLDER, TOKENS


TEXTS = ["1", "2", "$", " x", " let", "So", "Wait", "\n", "\t", " ", "7", "=", " the", "\\boxed{", "é", "你好"]
HOSTILE = [
    "<script>alert(1)</script>",
    "</script><script>alert(2)</script>",
    "<img src=x onerror=alert(3)>",
    "<!--<script >",
    "]]>",
    "&lt;b&gt;",
    "\u2028",
    "\x00",
    "\x1b[31m",
    "\u202e",
    "🙂",
    "\n",
    "\t",
    "${alert(4)}",
    "{{ 7 * 7 }}",
    "'\"><svg onload=alert(5)>",
]
SETTINGS = {"prob_threshold": "0.002", "entropy_quantile": "0.75", "selection": "low_entropy", "model": "made-up"}


def write_run(
    folder: Path, num_steps: int = 30, num_tokens: int = 400, num_completions: int = 6, texts=TEXTS, seed: int = 0
) -> Path:
    """Write `metrics.jsonl` and `token_log/` of a made-up run: a third of its tokens are silenced."""
    folder.mkdir(parents=True, exist_ok=True)
    write_metrics(folder, num_steps, seed)
    rng = np.random.default_rng(seed)
    steps = np.sort(rng.integers(1, num_steps + 1, num_tokens))
    silenced = rng.random(num_tokens) < 1 / 3
    candidate = silenced | (rng.random(num_tokens) < 0.2)
    token_ids = rng.integers(0, len(texts), num_tokens)
    vocabulary = pa.array(texts)
    probs = np.where(candidate, 10 ** rng.uniform(-7, -2.71, num_tokens), rng.beta(3, 0.5, num_tokens))
    entropies = np.where(silenced, rng.uniform(0, 0.6, num_tokens), rng.gamma(2, 0.5, num_tokens))
    contexts = pa.array([f"step {index}: 12+7=19; therefore " * 3 for index in range(97)])
    tops = pa.array([texts[index:] + texts[:index] for index in range(5)]).take(rng.integers(0, 5, num_tokens))
    columns = {
        "step": steps,
        "completion_id": pa.array([f"completion-{index}" for index in range(53)]).take(
            rng.integers(0, 53, num_tokens)
        ),
        "problem_id": pa.array(["problem-0", "problem-1"]).take(rng.integers(0, 2, num_tokens)),
        "position": rng.integers(0, 200, num_tokens),
        "token_id": token_ids,
        "token": vocabulary.take(token_ids),
        "before": contexts.take(rng.integers(0, 97, num_tokens)),
        "after": contexts.take(rng.integers(0, 97, num_tokens)),
        "prob": probs.astype("float32"),
        "entropy": entropies.astype("float32"),
        "entropy_threshold": (0.6 + 0.1 * np.sin(steps)).astype("float32"),
        "advantage": np.where(candidate, 0.54, rng.choice([-0.8, 0.54], num_tokens)).astype("float32"),
        "reward": np.ones(num_tokens, "float32"),
        "ratio": np.ones(num_tokens, "float32"),
        "gradient_norm": (0.54 * (1 - probs)).astype("float32"),
        "candidate": candidate,
        "silenced": silenced,
        "top_tokens": pa.array([row[:5] for row in tops.to_pylist()]) if num_tokens < 10_000 else tops,
        "top_probs": pa.array([[0.9995, 0.0001, 0.0001, 0.0001, 0.0001]]).take(np.zeros(num_tokens, int)),
    }
    write_tokens(folder, columns)
    completions = []
    for index in range(num_completions):
        ids = rng.integers(0, len(texts), 120)
        completions.append(
            {
                "step": 1 + index % num_steps,
                "completion_id": f"completion-{index}",
                "problem_id": f"problem-{index}",
                "prompt": "12+7-3=?",
                "tokens": [texts[place] for place in ids],
                "probs": rng.beta(3, 0.5, 120).tolist(),
                "entropies": rng.gamma(2, 0.3, 120).tolist(),
                "silenced": [bool(flag) for flag in rng.random(120) < 0.03],
                "advantage": 0.54,
                "reward": 1.0,
            }
        )
    table = pa.Table.from_pylist(completions, COMPLETIONS.with_metadata(SETTINGS))
    pq.write_table(table, folder / FOLDER / "completions-00000001-00000.parquet")
    return folder


def write_tokens(folder: Path, columns: dict) -> None:
    """Write one shard of tokens; columns that are left out are null."""
    num_rows = len(next(iter(columns.values())))
    arrays = [
        pa.array(columns[field.name]).cast(field.type) if field.name in columns else pa.nulls(num_rows, field.type)
        for field in TOKENS
    ]
    (folder / FOLDER).mkdir(parents=True, exist_ok=True)
    table = pa.Table.from_arrays(arrays, schema=TOKENS.with_metadata(SETTINGS))
    pq.write_table(table, folder / FOLDER / "tokens-00000001-00000.parquet", compression="zstd")


def write_metrics(folder: Path, num_steps: int, seed: int = 0) -> None:
    """Write `metrics.jsonl` as STAPOTrainer logs: rewards on odd steps, accuracy and quadrants on some."""
    rng = np.random.default_rng(seed)
    lines = []
    for step in range(1, num_steps + 1):
        progress = step / num_steps
        entry = {
            "step": step,
            "grad_norm": 0.2 + 0.05 * rng.random(),
            "entropy": 0.5 - 0.3 * progress + 0.02 * rng.normal(),
            "s2t/entropy": 0.5 - 0.3 * progress + 0.02 * rng.normal(),
            "s2t/silenced_share": float(rng.poisson(2) / 1e4 * (1 - progress / 2)),
            "s2t/candidate_share": float(rng.poisson(3) / 1e4 * (1 - progress / 2)),
            "s2t/entropy_threshold": 0.6 + 0.1 * rng.normal(),
        }
        if step % 2:
            entry |= {"reward": -0.5 + progress + 0.1 * rng.normal(), "completions/mean_length": 35 + rng.normal()}
        if step % 10 == 0:
            entry["heldout/greedy_accuracy"] = 0.5 + 0.4 * progress
            for quadrant, share, norm, change in zip(
                QUADRANTS, (0.2, 0.28, 0.0006, 0.0004), (0.2, 0.35, 0.7, 1.1), (-0.02, -0.01, 1e-4, 4e-4), strict=True
            ):
                name = f"s2t/positive/{quadrant}"
                entry |= {f"{name}/share": share, f"{name}/gradient_norm": norm, f"{name}/entropy_change": change}
                entry[f"{name}/gradient_share"] = share * norm / 0.3
        lines.append(json.dumps({key: float(value) if key != "step" else value for key, value in entry.items()}))
    (folder / "metrics.jsonl").write_text("\n".join(lines) + "\n")
