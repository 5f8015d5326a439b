"""What labkit exports is meant, documented and light."""

import importlib
import inspect
import pkgutil

import pytest
from pytest import mark, raises

import labkit
from course import lessons
from tests.marks import slow
from tests.ranks.nodes import ROOT, python

PAGE = (ROOT / "docs" / "labkit.md").read_text()


def test_all_is_exactly_what_is_public():
    assert labkit.__all__ == sorted({*labkit.__all__})
    modules = {"fabric", "measure", "ranks", "show"}
    offered = {name for name in dir(labkit) if not name.startswith("_")}
    assert offered - {"TYPE_CHECKING"} == {*labkit.__all__} | modules
    with raises(AttributeError, match="no attribute 'lunch'"):
        labkit.lunch  # noqa: B018


@mark.parametrize("package", ["labkit", "labkit.fabric", "labkit.measure"])
def test_what_editors_are_shown_is_there(package):
    module = importlib.import_module(package)
    assert {*labkit._lazily._homes(package)} >= {*module.__all__}
    assert all(getattr(module, name) is not None for name in module.__all__)


@mark.parametrize("name", labkit.__all__)
def test_each_public_name_is_documented_and_shown(name):
    assert inspect.getdoc(getattr(labkit, name))
    assert name in PAGE, "docs/labkit.md shows it"


@mark.parametrize(
    "guess",
    [
        slow("from labkit import Fabric, Launcher, Tracer, launch, time_calls, wire"),
        "from labkit.fabric import Fabric, FabricUnavailable",
        slow("from labkit.measure import Tracer, sched, wire, time_calls"),
        "import labkit; labkit.measure; labkit.fabric.Fabric; labkit.ranks; labkit.__version__",
        "import labkit.ranks.machine",
    ],
)
def test_what_people_guess_can_be_imported(guess):
    assert python("-c", guess).stderr == ""


def test_importing_labkit_is_light():
    heavy = ["torch", "matplotlib", "ipywidgets", "IPython", "networkx", "pyroute2", "cloudpickle"]
    program = f"import sys, labkit; print([m for m in {heavy} if m in sys.modules])"
    done = python("-c", program)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr


@pytest.mark.slow
def test_what_ranks_import_loads_nothing_that_draws():
    """Ranks import the module of what they run: anything of a lesson but its pictures."""
    found = pkgutil.walk_packages(lessons.__path__, "course.lessons.")
    names = [module.name for module in found if not module.name.endswith("pictures")]
    program = (
        f"import importlib, sys\nfor name in {names}: importlib.import_module(name)\n"
        "print([m for m in ('matplotlib', 'ipywidgets', 'IPython') if m in sys.modules])"
    )
    done = python("-c", program)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr
