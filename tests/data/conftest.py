import json
from pathlib import Path

import pytest
from datasets import Dataset


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    """What one test has read is not in the cache of another."""
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")


@pytest.fixture
def write_repository(tmp_path, monkeypatch):
    """Writes a folder in the shape of a repository on the hub: {config: {split: rows}}, or {split: rows}."""
    monkeypatch.chdir(tmp_path)

    def write(name: str, parts: dict, kind: str = "parquet") -> Path:
        configs = parts if isinstance(next(iter(parts.values())), dict) else {"default": parts}
        lines = ["---", "configs:"]
        for config, splits in configs.items():
            folder = tmp_path / name / config
            folder.mkdir(parents=True)
            lines += [f"- config_name: {config}", "  data_files:"]
            for split, rows in splits.items():
                if kind == "parquet":
                    Dataset.from_list(rows).to_parquet(folder / f"{split}.parquet")
                else:
                    (folder / f"{split}.{kind}").write_text("".join(json.dumps(row) + "\n" for row in rows))
                lines += [f"  - split: {split}", f"    path: {config}/{split}.{kind}"]
        (tmp_path / name / "README.md").write_text("\n".join([*lines, "---"]))
        return tmp_path / name

    return write
