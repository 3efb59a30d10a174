import doctest
import inspect

import forebay
import pytest


@pytest.fixture
def engine():
    with forebay.Engine(cache_bytes="16m") as engine:
        yield engine


def examples():
    """The examples of all docstrings."""
    import forebay.fsspec

    modules = [forebay, forebay._engine, forebay._asynchronous, forebay._checkpoint, forebay.fsspec]
    finder = doctest.DocTestFinder()
    for module in modules:
        names = {**vars(module), "forebay": forebay}
        found = finder.find(module, inspect.getmodule(module).__name__, globs=names)
        yield from (example for example in found if example.examples)
