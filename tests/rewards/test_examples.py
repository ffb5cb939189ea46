import doctest
import importlib
import pkgutil

import pytest

from stapo_trl import rewards


MODULES = sorted(module.name for module in pkgutil.iter_modules(rewards.__path__))


@pytest.mark.parametrize("name", [name for name in MODULES if name != "worker"])
def test_examples_in_docstrings_hold(name, monkeypatch, shared_workers):
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    module = importlib.import_module(f"{rewards.__name__}.{name}")
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE | doctest.IGNORE_EXCEPTION_DETAIL)
    finder = doctest.DocTestFinder(parser=FencedParser(), exclude_empty=True)
    for test in finder.find(module, name, globs=vars(module) | vars(importlib.import_module("builtins"))):
        runner.run(test)
    assert runner.summarize(verbose=False).failed == 0


class FencedParser(doctest.DocTestParser):
    """Fences around an example are no part of its output."""

    def parse(self, string, name="<string>"):
        return super().parse(string.replace("```python", "").replace("```", ""), name)
