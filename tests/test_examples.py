"""The examples in docstrings give the results they show."""

import doctest
import importlib
import pkgutil

import stapo_trl


OPTIONS = doctest.NORMALIZE_WHITESPACE | doctest.IGNORE_EXCEPTION_DETAIL


class FencedParser(doctest.DocTestParser):
    """TRL's docstrings fence their examples, which doctest would take for output."""

    def parse(self, string, name="<string>"):
        return super().parse(string.replace("```python", "").replace("```", ""), name)


def test_docstring_examples_are_true(monkeypatch):
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    finder = doctest.DocTestFinder(parser=FencedParser(), exclude_empty=True)
    attempted, failed = {}, []
    for found in pkgutil.walk_packages(stapo_trl.__path__, "stapo_trl."):
        if found.name.rpartition(".")[2] in ("__main__", "worker"):  # scripts
            continue
        module = importlib.import_module(found.name)
        for test in finder.find(module, found.name, globs=vars(module) | vars(importlib.import_module("builtins"))):
            result = doctest.DocTestRunner(verbose=False, optionflags=OPTIONS).run(test)
            attempted[found.name] = attempted.get(found.name, 0) + result.attempted
            failed += [test.name] * result.failed
    assert not failed
    assert {"stapo_trl.rules.s2t", "stapo_trl.rewards.math_accuracy"} <= attempted.keys() and sum(
        attempted.values()
    ) > 50
