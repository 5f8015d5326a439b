"""Imports point one way: labkit knows no course, a lesson no other lesson."""

import ast
from graphlib import CycleError, TopologicalSorter

from pytest import mark, raises

from tests.ranks.nodes import ROOT, python

COURSE = {"course", "course.comm"}
MAY_IMPORT = {
    "labkit": {"labkit.ranks", "labkit.fabric", "labkit.measure", "labkit.show"},
    "labkit.ranks": {"labkit.fabric"},
    "labkit.fabric": {"labkit.ranks"},
    "labkit.measure": {"labkit.ranks", "labkit.fabric"},
    "labkit.show": {"labkit.ranks", "labkit.fabric", "labkit.measure"},
}
"""Folder -> what it may import beside itself. The course may import all of labkit."""
DRAWING = {"matplotlib", "ipywidgets", "IPython"}


def name_of(path, root=ROOT):
    """`labkit.show.plots` for its file; a package is named like its folder."""
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {
    name_of(path): path
    for package in ("labkit", "course")
    for path in sorted((ROOT / package).rglob("*.py"))
}


def folder_of(name):
    """`labkit.ranks` for a module of labkit; `course`, `course.comm` or a lesson's own folder."""
    package, *inner = name.split(".")
    if package == "course":
        if inner[:1] == ["lessons"] and len(inner) > 1:
            return f"course.lessons.{inner[1]}"
        return "course.comm" if inner[:1] == ["comm"] else "course"
    return f"labkit.{inner[0]}" if inner and (ROOT / package / inner[0]).is_dir() else package


def imported(path):
    """Every name that a file imports, wherever in the file the import stands."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide the layer"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def of_ours(path, modules=MODULES):
    """The modules of labkit and course that a file imports; fails where one is not there."""
    for name in imported(path):
        if name.split(".")[0] in ("labkit", "course"):
            module = name if name in modules else name.rpartition(".")[0]
            assert module in modules, f"{path} imports {name}, which does not exist"
            yield module


def circle(arrows):
    """The first circle among modules, or nothing."""
    try:
        TopologicalSorter(arrows).prepare()
    except CycleError as error:
        return " <- ".join(error.args[1])
    return None


@mark.parametrize("name", MODULES)
def test_imports_point_one_way(name):
    folder = folder_of(name)
    for other in of_ours(MODULES[name]):
        there = folder_of(other)
        if folder.startswith("labkit"):
            assert there in MAY_IMPORT[folder] | {folder, "labkit"}, f"{folder} imports {other}"
        elif there.startswith("course.lessons."):
            plays = name == "course.lessons.casebook.case"  # the ward, in a terminal
            assert there == folder or plays, f"{folder} imports {other}"
        elif folder == "course.comm":
            assert there.startswith("labkit") or there == folder, f"{folder} imports {other}"


def test_no_modules_import_each_other_in_a_circle():
    arrows = {name: {*of_ours(path)} - {name} for name, path in MODULES.items()}
    assert circle(arrows) is None


def test_only_pictures_draw():
    for name, path in MODULES.items():
        if folder_of(name) in ("labkit.ranks", "labkit.fabric", "labkit.measure", "course.comm"):
            assert not {part.split(".")[0] for part in imported(path)} & DRAWING, name


@mark.slow
def test_what_ranks_import_loads_nothing_that_draws():
    """Ranks import the module of what they run: anything of a lesson but its pictures."""
    names = [name for name in MODULES if ".lessons." in name and not name.endswith("pictures")]
    program = (
        f"import importlib, sys\nfor name in {names}: importlib.import_module(name)\n"
        f"print([name for name in {sorted(DRAWING)} if name in sys.modules])"
    )
    done = python("-c", program)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr


def test_a_wrong_arrow_a_missing_module_and_a_circle_would_be_seen(tmp_path):
    wrong = tmp_path / "wrong.py"
    wrong.write_text("def f():\n    from labkit.show import plots\n    import torch.nn")
    assert list(imported(wrong)) == ["labkit.show.plots", "torch.nn"]
    assert list(of_ours(wrong)) == ["labkit.show.plots"]
    wrong.write_text("import labkit.no.such")
    with raises(AssertionError, match=r"labkit\.no\.such"):
        list(of_ours(wrong))
    assert circle({"a": {"b"}, "b": {"c"}, "c": {"a"}}) is not None
    assert circle({"a": {"b"}, "b": {"c"}, "c": set()}) is None
