"""What labkit exports is meant, documented and light."""

import inspect
import subprocess
import sys

from pytest import mark

import labkit


def test_all_is_exactly_what_is_public():
    public = {
        name
        for name, value in vars(labkit).items()
        if not name.startswith("_") and not inspect.ismodule(value)
    }
    assert set(labkit.__all__) == public
    assert labkit.__all__ == sorted(labkit.__all__)


@mark.parametrize("name", labkit.__all__)
def test_each_public_name_is_documented(name):
    value = getattr(labkit, name)
    assert inspect.getdoc(value)
    if not (inspect.isclass(value) and issubclass(value, Exception)):
        assert "Example:" in inspect.getdoc(value), "shown by an example"


def test_importing_labkit_is_light():
    heavy = ["torch", "matplotlib", "ipywidgets", "IPython", "networkx", "pyroute2"]
    program = f"import sys, labkit; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr
