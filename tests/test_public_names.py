"""What labkit exports is meant, documented and light; what is public in it is used."""

import ast
import importlib
import inspect
import json
import re

import pytest
from pytest import mark, raises

import labkit
from tests.marks import slow
from tests.ranks.nodes import ROOT, python
from tests.test_layers import MODULES

PAGE = (ROOT / "docs" / "labkit.md").read_text()
INSTRUMENTS = {
    "course.lessons.casebook.final.late_rank",  # typed by the learner
    "course.lessons.pipeline_p2p.pictures.mystery",  # drawn for the README
    "course.notebooks.edition.slug",  # named in Sphinx's settings
    "labkit.ranks.errors.RankTraceback",  # at the end of an exception's chain
    *(f"course.predictions.ledger.{name}" for name in ("choose", "gate", "mark", "warmup")),
    "labkit.show.alt_text.tables_of",  # what a picture tells who cannot see it
    "labkit.show.alt_text.text_of",
}
"""What a learner may use although no lesson, page or command does."""
BY_NAME = {
    *("main", "configure", "serve"),  # by the command line, `python -m`, the fork server
    *("LESSON", "NAME", "TITLE", "run", "table", "draw"),  # by whoever finds a lesson
    "measure",  # of a lesson's guilty worlds, by `course record`
    "pages",
}
"""What is asked for by its name, whatever module has it."""


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


def loaded(node):
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}


def public(tree):
    """The public functions and classes of a module, and constants that it does not use itself."""
    own = loaded(tree)
    names = []
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.append(node.name)
        elif isinstance(node, ast.Assign):
            targets = (target.id for target in node.targets if isinstance(target, ast.Name))
            names += [name for name in targets if name not in own and name != "__all__"]
    return [name for name in names if not name.startswith("_")]


def used(tree):
    """The names that a file uses of labkit's modules, as `labkit.module.name`."""
    aliases = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                yield f"{node.module}.{alias.name}"
                aliases[alias.asname or alias.name] = f"{node.module}.{alias.name}"
        elif isinstance(node, ast.Import):
            aliases |= {alias.asname: alias.name for alias in node.names if alias.asname}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            yield f"{aliases.get(ast.unparse(node.value), ast.unparse(node.value))}.{node.attr}"


def shown(tree):
    """What a caller gets to see: types in annotations, base classes, exceptions, in tables."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise):
            yield from loaded(node)
        if isinstance(node, ast.Assign | ast.AnnAssign) and node in tree.body and node.value:
            yield from loaded(node.value)
        parts = [getattr(node, "annotation", None), getattr(node, "returns", None)]
        for part in filter(None, parts + getattr(node, "bases", [])):
            yield from (name.id for name in ast.walk(part) if isinstance(name, ast.Name))


def cells():
    for path in [*(ROOT / "notebooks").rglob("*.ipynb"), *(ROOT / "solutions").glob("*.ipynb")]:
        notebook = json.loads(path.read_text())
        yield "\n".join("".join(c["source"]) for c in notebook["cells"] if c["cell_type"] == "code")


def named_in_data():
    """What a lesson's data files name: a program, `interface`, or a reading, `late`."""
    for path in (ROOT / "course" / "lessons").glob("*/*.json"):
        place = f"course.lessons.{path.parent.name}"
        for name in re.findall(r'"([a-z]\w*)"', path.read_text()):
            yield from (f"{place}.programs.{name}", f"{place}.readings.{name}")


@pytest.mark.slow
def test_what_is_public_is_used_outside_its_module():
    trees = {name: ast.parse(path.read_text()) for name, path in MODULES.items()}
    others = [ast.parse(source) for source in cells()]
    others += [ast.parse(path.read_text()) for path in (ROOT / "examples").glob("*.py")]
    wanted = {name: set(used(tree)) for name, tree in trees.items()}
    anywhere = set().union(*map(set, map(used, others)))
    anywhere |= {*named_in_data()}
    anywhere |= {f"{home}.{name}" for name, home in labkit._lazily._homes("labkit").items()}
    unused = []
    for module, tree in trees.items():
        elsewhere = anywhere.union(*(names for name, names in wanted.items() if name != module))
        seen = {*shown(tree), *BY_NAME}
        if module.startswith("course"):  # what their own modules use is used
            seen |= loaded(tree)
        unused += [
            f"{module}.{name}"
            for name in public(tree)
            if f"{module}.{name}" not in elsewhere and name not in seen
        ]
    left = sorted({*unused} - INSTRUMENTS)
    assert left == [], "make these private, or take away what only tests use"
