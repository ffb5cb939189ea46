import os
from pathlib import Path

import pytest

from stapo_trl.rewards.verifier import verdict as module
from stapo_trl.rewards.verifier.verdict import Verifier


os.environ.setdefault("HF_HUB_OFFLINE", "1")


@pytest.fixture(scope="session")
def verifier() -> Verifier:
    verifier = Verifier(item_seconds=5.0, batch_seconds=60.0)
    yield verifier
    verifier.pool.close()


@pytest.fixture(scope="module")
def shared_workers(verifier) -> None:
    """Every verifier of a test module works with the same processes: starting some takes longer than most tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "WorkerPool", lambda *options: verifier.pool)
        yield


@pytest.fixture(scope="session")
def shared() -> Path:
    """Benchmarks and completions that lie next to the checkout."""
    folder = Path(__file__).parents[3] / "shared"
    if not folder.is_dir():
        pytest.skip("needs the shared data folder next to the checkout")
    return folder
