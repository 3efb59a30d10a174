"""The examples of the docstrings, and the stubs."""

import ast
import doctest
import inspect
import pathlib

import forebay
import pytest
from conftest import examples


@pytest.mark.parametrize("example", list(examples()), ids=lambda example: example.name)
def test_an_example_runs(example, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = doctest.DocTestRunner().run(example)
    assert result.attempted > 0 and result.failed == 0


def test_the_stub_has_every_public_name_and_method():
    tree = ast.parse(pathlib.Path(forebay.__file__).with_suffix(".pyi").read_text())
    stub = {node.name: node for node in tree.body if hasattr(node, "name")}
    for name in forebay.__all__:
        member = getattr(forebay, name)
        if name not in stub:
            assert issubclass(member, OSError)
        elif inspect.isclass(member):
            methods = {getattr(node, "name", None) or node.target.id for node in stub[name].body}
            inherited = {*dir(object), *dir(forebay.File.__base__), *dir(forebay.Engine.__base__)}
            assert {one for one in vars(member) if one[0] != "_"} - methods <= inherited, name
