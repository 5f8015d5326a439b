"""What labkit exports is meant, documented and light."""

import dataclasses
import inspect
import pkgutil
import re
from pathlib import Path

from pytest import mark, raises

import labkit
from course import lessons
from labkit.ranks.options import Options
from tests.ranks.nodes import ROOT, python

PAGE = (ROOT / "docs" / "labkit.md").read_text()


def test_all_is_exactly_what_is_public():
    assert dir(labkit) == labkit.__all__ == sorted({*labkit.__all__})
    with raises(AttributeError, match="no attribute 'lunch'"):
        labkit.lunch  # noqa: B018


def test_launch_takes_every_option_and_no_other():
    parameters = inspect.signature(labkit.launch).parameters.values()
    named = {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}
    assert named == {field.name: field.default for field in dataclasses.fields(Options)}


def test_editors_are_shown_what_is_there():
    shown, source = {}, Path(labkit.__file__).read_text()
    for line in re.findall(r"^    (from labkit\.\S+ import .+)$", source, re.MULTILINE):
        exec(line, {}, shown)
    assert shown == {name: getattr(labkit, name) for name in labkit.__all__}


@mark.parametrize("name", labkit.__all__)
def test_each_public_name_is_documented_and_shown(name):
    assert inspect.getdoc(getattr(labkit, name))
    assert name in PAGE, "docs/labkit.md shows it"


def test_importing_labkit_is_light_and_what_people_guess_can_be_imported():
    heavy = ["torch", "matplotlib", "ipywidgets", "IPython", "networkx", "pyroute2", "cloudpickle"]
    program = f"""
import sys, labkit.ranks.machine
print(labkit.__version__ and [name for name in {heavy} if name in sys.modules])
from labkit import Fabric, Launcher, Tracer, launch, time_calls
from labkit.measure import sched, wire
"""
    done = python("-c", program)
    assert (done.stdout, done.stderr) == ("[]\n", "")


@mark.slow
def test_what_ranks_import_loads_nothing_that_draws():
    """Ranks import the module of what they run: anything of a lesson but its pictures."""
    found = pkgutil.walk_packages(lessons.__path__, "course.lessons.")
    names = [module.name for module in found if not module.name.endswith("pictures")]
    program = f"import importlib, sys\nfor name in {names}: importlib.import_module(name)\n"
    program += "print([m for m in ('matplotlib', 'ipywidgets', 'IPython') if m in sys.modules])"
    done = python("-c", program)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr
