"""The examples in docstrings give what they say."""

import doctest
import importlib
import pkgutil

from pytest import mark

import course
import labkit

MODULES = sorted(
    module.name
    for package in (labkit, course)
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
    if not module.name.endswith("__main__")
)
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


@mark.slow
@mark.parametrize("name", MODULES)
def test_examples_hold(name, monkeypatch, tmp_path):
    monkeypatch.setenv("LABKIT_LEDGER", str(tmp_path / "ledger.json"))
    module = importlib.import_module(name)
    failed, _ = doctest.testmod(module, optionflags=FLAGS)
    assert failed == 0
