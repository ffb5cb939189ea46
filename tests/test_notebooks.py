"""The notebooks run as they are shipped: in a real kernel, offline, with the smoke switch, and leave what they say."""

import copy
import json
import re
import tomllib
from pathlib import Path

import nbformat
import pytest
from IPython.core.inputtransformer2 import TransformerManager
from nbclient import NotebookClient
from packaging.requirements import Requirement

from stapo_trl.cli import COMMANDS
from stapo_trl.cli.recipes import list_recipes


ROOT = Path(__file__).parent.parent
NOTEBOOKS = {path.stem: nbformat.read(path, as_version=4) for path in sorted((ROOT / "notebooks").glob("*.ipynb"))}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def code_cells(name: str) -> list:
    return [cell for cell in NOTEBOOKS[name].cells if cell.cell_type == "code"]


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """One warm start for all notebooks."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def executed(tmp_path, monkeypatch, cache):
    """Executes a notebook in an empty folder, and returns the folder."""

    def execute(name: str) -> Path:
        folder = tmp_path / "notebooks"
        folder.mkdir()
        before = set((ROOT / "notebooks").iterdir())
        monkeypatch.setenv("STAPO_SMOKE", "1")
        monkeypatch.setenv("STAPO_CACHE", str(cache))
        monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "datasets"))
        monkeypatch.setenv("PYTHONPATH", str(ROOT))
        monkeypatch.setenv("PIP_NO_INDEX", "1")  # an install cell that runs after all finds nothing
        notebook = copy.deepcopy(NOTEBOOKS[name])
        resources = {"metadata": {"path": str(folder)}}
        NotebookClient(notebook, timeout=300, kernel_name="python3", resources=resources).execute()
        (install,) = [cell for cell in notebook.cells if cell.id == "install"]
        assert install.outputs == []
        assert set((ROOT / "notebooks").iterdir()) == before
        return folder

    return execute


def check_two_adapters_and_their_report(folder):
    for run in ("grpo", "stapo"):
        assert (folder / run / "adapter_model.safetensors").stat().st_size > 10_000
        steps = [json.loads(line)["step"] for line in (folder / run / "metrics.jsonl").read_text().splitlines()]
        assert steps == [1, 2, 2]  # the last entry is the summary
    assert list((folder / "stapo" / "token_log").glob("tokens-*.parquet"))
    assert "stapo" in (folder / "report" / "report.html").read_text()
    assert (folder / "report" / "curves.png").stat().st_size > 10_000


def check_tokens_and_their_quadrants(folder):
    rows = (folder / "quadrants.csv").read_text().splitlines()
    assert len(rows) == 5 and rows[0] == "quadrant,tokens,norm at w = 1,norm,entropy change"
    counted = sum(int(row.split(",")[1]) for row in rows[3:])
    silenced = len((folder / "silenced.csv").read_text().splitlines()) - 1
    assert 0 < silenced < counted
    assert len((folder / "answers.jsonl").read_text().splitlines()) == 512
    assert (folder / "bounds.png").stat().st_size > 10_000


def check_adapter_evaluated_before_and_after(folder):
    assert (folder / "lora-run" / "adapter_model.safetensors").exists()
    for when in ("before", "after"):
        result = json.loads((folder / "evaluations" / when / "t1.0-p1.0.json").read_text())
        assert result["benchmarks"]["arithmetic"]["problems"] == 40
    low, high = json.loads((folder / "comparison.json").read_text())["arithmetic"]["interval"]
    assert low <= high


def check_paired_intervals(folder):
    rows = (folder / "comparison" / "differences.csv").read_text().splitlines()
    assert len(rows) == 1 + 3 and rows[1].startswith("stapo-0 minus grpo-0,")
    assert set(json.loads((folder / "comparison" / "accuracies.json").read_text())) == {"grpo-0", "stapo-0", "stapo-1"}
    assert (folder / "comparison" / "curves.png").stat().st_size > 10_000


CHECKS = {
    "01_quickstart_colab": check_two_adapters_and_their_report,
    "02_what_gets_silenced": check_tokens_and_their_quadrants,
    "03_lora_qwen_math": check_adapter_evaluated_before_and_after,
    "04_compare_runs": check_paired_intervals,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_runs_and_leaves_what_it_promises(executed, name):
    CHECKS[name](executed(name))


def test_the_overview_lists_every_notebook():
    overview = (ROOT / "notebooks" / "README.md").read_text()
    assert re.findall(r"\]\((\w+)\.ipynb\)", overview) == list(NOTEBOOKS)


def test_no_output_is_committed():
    cells = [(name, cell) for name in NOTEBOOKS for cell in code_cells(name)]
    assert not [(name, cell.id) for name, cell in cells if cell.outputs or cell.execution_count is not None]


def test_metadata_is_minimal_and_ids_are_words():
    failures = []
    for name, notebook in NOTEBOOKS.items():
        kernel = notebook.metadata.get("kernelspec", {}).get("name")
        if set(notebook.metadata) != {"kernelspec", "language_info"} or kernel != "python3":
            failures.append((name, notebook.metadata))
        failures += [
            (name, cell.id)
            for cell in notebook.cells
            if cell.metadata != {} or not re.fullmatch(r"[a-z]+(-[a-z]+)*", cell.id)
        ]
    assert not failures


def test_the_badge_opens_the_notebook_and_the_figures_follow():
    path = PROJECT["urls"]["Repository"].removeprefix("https://github.com/")
    measured = re.compile(r"not measured yet|\d+(\.\d+)? (s|minutes|GB)\b.*")
    failures = []
    for name, notebook in NOTEBOOKS.items():
        title = notebook.cells[0].source
        if f"(https://colab.research.google.com/github/{path}/blob/main/notebooks/{name}.ipynb)" not in title:
            failures.append((name, "badge"))
        figures = title[title.index("| where | time | memory |") :]
        rows = [line.split("|")[1:-1] for line in figures.splitlines()[2:] if line.startswith("|")]
        if not rows or not all(measured.fullmatch(cell.strip()) for _, *cells in rows for cell in cells):
            failures.append((name, rows))
    assert not failures


def test_the_switch_is_read_in_one_cell():
    readers = {
        name: [cell.id for cell in code_cells(name) if "environ" in cell.source and "STAPO_SMOKE" in cell.source]
        for name in NOTEBOOKS
    }
    assert readers == dict.fromkeys(NOTEBOOKS, ["switch"])


def test_pip_is_the_only_magic_and_cells_are_plain_python():
    transform = TransformerManager().transform_cell
    failures = []
    for name in NOTEBOOKS:
        for cell in code_cells(name):
            magics = re.findall(r"get_ipython\(\)\.(\w+)\('?(\w*)", transform(cell.source))
            if magics != ([("run_line_magic", "pip")] * 2 if cell.id == "install" else []):
                failures.append((name, cell.id, magics))
    assert not failures


def test_recipes_commands_and_notebooks_that_are_named_exist():
    unknown = set()
    for notebook in NOTEBOOKS.values():
        text = "\n".join(cell.source for cell in notebook.cells)
        unknown |= set(re.findall(r"\b(qwen3-[\w.]+-[\w-]+)\b", text)) - set(list_recipes())
        unknown |= {shell or call for shell, call in re.findall(r"`stapo (\w+)|stapo\(\"(\w+)", text)} - set(COMMANDS)
        unknown |= set(re.findall(r"\b(\d\d_\w+)\.ipynb", text)) - set(NOTEBOOKS)
    assert not unknown


def test_pins_are_those_of_the_tested_set():
    constraints = (ROOT / "tests" / "constraints.txt").read_text().splitlines()
    tested = {pin.name.lower(): pin.specifier for pin in map(Requirement, constraints[1:])}
    required = {pin.name.lower(): pin.specifier for pin in map(Requirement, PROJECT["dependencies"])}
    failures = []
    for name in NOTEBOOKS:
        (install,) = [cell for cell in code_cells(name) if cell.id == "install"]
        own, *others = map(Requirement, re.findall(r'"([^"]+)"', install.source))
        if own.name != PROJECT["name"] or own.url is not None or own.extras - set(PROJECT["optional-dependencies"]):
            failures.append((name, own))
        if "trl" not in [pin.name for pin in others]:
            failures.append((name, "no trl"))
        for pin in others:
            (version,) = pin.specifier
            if pin.specifier != tested[pin.name] or not required[pin.name].contains(version.version):
                failures.append((name, pin))
    assert not failures
