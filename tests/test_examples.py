"""The examples in docstrings give the results they show."""

import doctest
import importlib

import pytest


MODULES = [
    "groups",
    "memory",
    "recipes",
    "recipes.arguments",
    "recipes.listing",
    "s2t",
    "stapo_config",
    "token_dynamics",
    "visible",
    "completions",
    "data.arithmetic",
    "data.columns",
    "data.gold",
    "data.identity",
    "data.overlap",
    "data.problems",
    "data.prompt",
    "data.rows",
    "report.curves",
    "report.page",
    "report.style",
    "evaluation.comparison",
    "evaluation.decoding",
    "evaluation.metrics",
    "evaluation.settings",
]


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples_are_true(name):
    module = importlib.import_module(f"stapo_trl.{name}")
    # TRL's docstrings fence their examples, which doctest would take for output
    parser = doctest.DocTestParser()
    parse = parser.parse
    parser.parse = lambda string, name="": parse(string.replace("```python", "").replace("```", ""), name)
    finder = doctest.DocTestFinder(parser=parser, exclude_empty=True)
    results = [doctest.DocTestRunner(verbose=False).run(test) for test in finder.find(module) if test.examples]
    assert results and sum(result.failed for result in results) == 0
