import pytest
from datasets import Dataset

from stapo_trl.arithmetic.problems import load_arithmetic
from stapo_trl.arithmetic.warm_start import build_model, build_tokenizer
from stapo_trl.evaluation.samples import Sample
from stapo_trl.evaluation.sampling.settings import SamplingSettings


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
def short():
    return SamplingSettings(1.0, 1.0, 12)
