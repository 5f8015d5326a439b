"""What labkit exports is meant, documented and light; what is public in it is used."""

import ast
import inspect
import json
import subprocess
import sys
from pathlib import Path

from pytest import mark

import labkit
from tests.test_layers import MODULES

ROOT = Path(__file__).resolve().parents[1]
INSTRUMENTS = {
    "labkit.comm.algorithms.tree_reduce",
    "labkit.comm.algorithms.hierarchical_all_reduce",
    "labkit.comm.algorithms.two_levels",
    "labkit.measure.runs.Disturbed",
    "labkit.measure.sched.SchedUnavailable",
    "labkit.measure.timeline.clock_marker",
    "labkit.show.alt_text.tables_of",
    "labkit.show.alt_text.text_of",
    "labkit.show.wire.all_rounds",
    "labkit.show.wire.arrows",
    "labkit.show.wire.one_round",
}
"""What a learner may use although no lesson does."""
HELD = ("comm", "measure", "show")
"""Folders of the kit that are held to it; launch and fabric follow when they are done."""
TO_DO = {
    *(f"labkit.comm.costs.{name}" for name in ("ring_reduce_scatter", "ring_all_gather")),
    *(f"labkit.comm.costs.{name}" for name in ("tree_reduce", "tree_all_reduce")),
    "labkit.comm.costs.recursive_doubling_all_reduce",
    "labkit.comm.collectives.WrongAnswer",
}
"""What is to become private, or to go."""


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


def public(tree):
    """The public functions and classes of a module, and constants that it does not use itself."""
    own = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
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


def in_annotations(tree):
    """What stands in annotations and as base classes: types that a caller gets to see."""
    for node in ast.walk(tree):
        parts = [getattr(node, "annotation", None), getattr(node, "returns", None)]
        for part in filter(None, parts + getattr(node, "bases", [])):
            yield from (name.id for name in ast.walk(part) if isinstance(name, ast.Name))


def cells():
    for path in [*(ROOT / "notebooks").glob("*.ipynb"), *(ROOT / "solutions").glob("*.ipynb")]:
        notebook = json.loads(path.read_text())
        yield "\n".join("".join(c["source"]) for c in notebook["cells"] if c["cell_type"] == "code")


def test_what_is_public_in_the_kit_is_used_outside_its_module():
    trees = {name: ast.parse(path.read_text()) for name, path in MODULES.items()}
    others = [ast.parse(source) for source in cells()]
    others += [ast.parse(path.read_text()) for path in (ROOT / "examples").glob("*.py")]
    wanted = {name: set(used(tree)) for name, tree in trees.items()}
    anywhere = set().union(*map(set, map(used, others)))
    unused = []
    for module, tree in trees.items():
        if module.split(".")[1:2] and module.split(".")[1] in HELD:
            elsewhere = anywhere.union(*(names for name, names in wanted.items() if name != module))
            types = set(in_annotations(tree))
            unused += [
                f"{module}.{name}"
                for name in public(tree)
                if f"{module}.{name}" not in elsewhere and name not in types
            ]
    left = sorted({*unused} - INSTRUMENTS - TO_DO)
    assert left == [], "make these private, or take away what only tests use"
