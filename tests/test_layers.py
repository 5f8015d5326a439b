"""Imports point one way: the kit knows neither course nor lessons, a lesson no other lesson."""

import ast
from pathlib import Path

from pytest import mark

LABKIT = Path(__file__).resolve().parents[1] / "labkit"
MAY_IMPORT = {
    "fabric": {"launch"},
    "launch": {"fabric"},
    "measure": {"launch", "fabric"},
    "comm": {"measure", "launch", "fabric"},
    "show": {"comm", "measure", "launch", "fabric"},
    "course": {"show", "comm", "measure", "launch", "fabric"},
    "lessons": {"course", "show", "comm", "measure", "launch", "fabric"},
}
KIT = {"launch", "fabric", "measure", "comm", "show"}
DRAWING = {"matplotlib", "ipywidgets", "IPython"}
NO_DRAWING = {"launch", "fabric", "measure", "comm"}
MODULES = sorted(path for path in LABKIT.rglob("*.py") if path.parent != LABKIT)


def imported(path):
    """Every module that a file imports, wherever in the file the import stands."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide the layer"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def of_labkit(path):
    """The parts behind ``labkit.`` of what a file imports from labkit's folders."""
    parts = (name.split(".")[1:] for name in imported(path) if name.startswith("labkit."))
    return [part for part in parts if part[0] in MAY_IMPORT]


def draws(path):
    return {name.split(".")[0] for name in imported(path)} & DRAWING or any(
        part[0] == "show" for part in of_labkit(path)
    )


def ranks_import(path):
    """The modules of one lesson that its `programs` import, directly or not; itself included."""
    seen, todo = set(), [path]
    while todo:
        module = todo.pop()
        if module in seen or not module.exists():
            continue
        seen.add(module)
        inside = (
            part[2:] for part in of_labkit(module) if part[:2] == ["lessons", path.parent.name]
        )
        todo += [path.parent / f"{part[0]}.py" for part in inside if part]
    return seen


@mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(LABKIT)))
def test_imports_point_one_way(path):
    folder, *inner = path.relative_to(LABKIT).parts
    for part in of_labkit(path):
        if folder == "course" and part == ["lessons"]:
            continue  # the empty package, to look through it for lessons
        assert part[0] in MAY_IMPORT[folder] | {folder}, f"{folder} imports {'.'.join(part)}"
        if folder == "lessons" and part[0] == "lessons":
            assert part[1] == inner[0], f"lesson {inner[0]} imports lesson {part[1]}"
    if folder in NO_DRAWING:
        assert not draws(path), f"{folder} draws"


@mark.parametrize("path", sorted(LABKIT.glob("lessons/*/programs.py")), ids=lambda p: p.parent.name)
def test_what_ranks_import_draws_nothing(path):
    assert [module.name for module in sorted(ranks_import(path)) if draws(module)] == []


def test_no_two_modules_of_a_folder_import_each_other():
    arrows = set()
    for path in MODULES:
        me = path.relative_to(LABKIT).with_suffix("").parts
        for part in of_labkit(path):
            for end in (part, part[:-1]):
                if (LABKIT.joinpath(*end).with_suffix(".py")).exists():
                    arrows.add((".".join(me), ".".join(end)))
    circles = {
        tuple(sorted(pair)) for pair in arrows if pair[::-1] in arrows and pair[0] != pair[1]
    }
    assert circles == set()


def test_every_folder_is_known():
    assert {path.parent.name for path in LABKIT.glob("*/__init__.py")} == set(MAY_IMPORT)


def test_a_wrong_arrow_would_be_seen(tmp_path):
    wrong = tmp_path / "wrong.py"
    wrong.write_text("def f():\n    from labkit.show import plots\n    import torch.nn")
    assert list(imported(wrong)) == ["labkit.show.plots", "torch.nn"]
    assert draws(wrong)
