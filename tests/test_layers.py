"""Imports point one way: the kit knows neither course nor lessons, a lesson no other lesson."""

import ast
import subprocess
import sys
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from pytest import mark, raises

LABKIT = Path(__file__).resolve().parents[1] / "labkit"
KIT = ("launch", "fabric", "measure", "comm", "show")
MAY_IMPORT = {
    "launch": {"fabric"},
    "fabric": {"launch"},
    "measure": {"launch", "fabric"},
    "comm": {"launch", "fabric", "measure"},
    "show": {"launch", "fabric", "measure", "comm"},
    "course": {*KIT},
    "lessons": {*KIT, "course"},
}
DRAWING = {"matplotlib", "ipywidgets", "IPython"}


def name_of(path, root=LABKIT):
    """`labkit.show.plots` for its file; a package is named like its folder."""
    parts = path.relative_to(root.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {name_of(path): path for path in sorted(LABKIT.rglob("*.py"))}


def imported(path):
    """Every name that a file imports, wherever in the file the import stands."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide the layer"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def of_labkit(path, modules=MODULES):
    """The modules of labkit that a file imports; fails where one is not there."""
    for name in imported(path):
        if name.split(".")[0] == "labkit":
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


@mark.parametrize("name", [name for name in MODULES if name.count(".") > 1])
def test_imports_point_one_way(name):
    _, folder, *inner = name.split(".")
    for other in of_labkit(MODULES[name]):
        _, there, *rest = [*other.split("."), ""]
        if (folder, other) == ("course", "course.lessons"):
            continue  # the empty package, to look through it for lessons
        assert there in MAY_IMPORT[folder] | {folder, ""}, f"{folder} imports {other}"
        if folder == there == "lessons":
            assert rest[0] == inner[0], f"lesson {inner[0]} imports lesson {rest[0]}"


def test_every_folder_is_known():
    assert {path.parent.name for path in LABKIT.glob("*/__init__.py")} == set(MAY_IMPORT)


def test_no_modules_import_each_other_in_a_circle():
    arrows = {name: {*of_labkit(path)} - {name} for name, path in MODULES.items()}
    assert circle(arrows) is None


def test_only_pictures_draw():
    for name, path in MODULES.items():
        if name.split(".")[1:2] in (["launch"], ["fabric"], ["measure"], ["comm"]):
            assert not {part.split(".")[0] for part in imported(path)} & DRAWING, name


def test_what_ranks_import_loads_nothing_that_draws():
    """Ranks import the module of what they run: anything of a lesson but its pictures."""
    names = [name for name in MODULES if ".lessons." in name and not name.endswith("pictures")]
    program = (
        f"import importlib, sys\nfor name in {names}: importlib.import_module(name)\n"
        f"print([name for name in {sorted(DRAWING)} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr


def test_a_wrong_arrow_a_missing_module_and_a_circle_would_be_seen(tmp_path):
    wrong = tmp_path / "wrong.py"
    wrong.write_text("def f():\n    from labkit.show import plots\n    import torch.nn")
    assert list(imported(wrong)) == ["labkit.show.plots", "torch.nn"]
    assert list(of_labkit(wrong)) == ["labkit.show.plots"]
    wrong.write_text("import labkit.no.such")
    with raises(AssertionError, match=r"labkit\.no\.such"):
        list(of_labkit(wrong))
    assert circle({"a": {"b"}, "b": {"c"}, "c": {"a"}}) is not None
    assert circle({"a": {"b"}, "b": {"c"}, "c": set()}) is None


LINES = {"launch": 2100, "fabric": 700, "measure": 4000, "comm": 1350, "show": 1550, "course": 3200}
"""How long the folders may grow, docstrings included. Who needs more takes something away first."""


def lines(path):
    return sum(len(one.read_text().splitlines()) for one in path.rglob("*.py"))


@mark.parametrize("folder", LINES)
def test_the_kit_stays_small(folder):
    assert lines(LABKIT / folder) <= LINES[folder]


def test_a_lesson_and_a_module_stay_readable():
    for lesson in (path for path in (LABKIT / "lessons").iterdir() if path.is_dir()):
        assert lines(lesson) <= 2400, lesson.name
    for path in MODULES.values():
        assert len(path.read_text().splitlines()) <= 650, path.name
