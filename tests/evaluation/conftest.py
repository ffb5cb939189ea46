import pytest
from datasets import Dataset

from stapo_trl.data.arithmetic import load_arithmetic
from stapo_trl.evaluation.sample import Sample
from stapo_trl.evaluation.settings import SamplingSettings
from stapo_trl.warm_start import build_model, build_tokenizer


class Oracle:
    """A sampler that answers from a table: a problem's text, or a list of texts, one for each of its samples."""

    backend, model, fingerprint = "oracle", "oracle", "0"

    def __init__(self, answers=None, chunk=7, tokens=5):
        self.answers, self.chunk, self.tokens, self.asked = answers, chunk, tokens, []

    def sample(self, requests, settings):
        for start in range(0, len(requests), self.chunk):
            part = requests[start : start + self.chunk]
            self.asked += [request.key for request in part]
            yield [
                Sample(*r.key, checksum=r.problem.checksum, text=self.text(r), num_tokens=self.tokens, truncated=False)
                for r in part
            ]

    def text(self, request):
        if self.answers is None:
            return f"So \\boxed{{{request.problem.solution}}}."
        answer = self.answers[request.problem.problem_id]
        return answer if isinstance(answer, str) else answer[request.number]

    def close(self):
        self.closed = True


@pytest.fixture
def oracle():
    return Oracle


@pytest.fixture
def problems() -> Dataset:
    return load_arithmetic("test", 6, num_terms=3)


@pytest.fixture
def policy():
    return build_model(), build_tokenizer()


@pytest.fixture
def saved(tmp_path):
    """A folder with an untrained policy."""
    folder = tmp_path / "policy"
    build_model().save_pretrained(folder)
    build_tokenizer().save_pretrained(folder)
    return str(folder)


@pytest.fixture
def short():
    return SamplingSettings(1.0, 1.0, 12)
