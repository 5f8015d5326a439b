"""Imports point down only: commands, course, show, experiments, comm, model, measure, run."""

import ast
from pathlib import Path

from pytest import mark

LABKIT = Path(__file__).resolve().parents[1] / "labkit"
LEVEL = {
    "run": 0,
    "measure": 1,
    "model": 2,
    "comm": 3,
    "experiments": 4,
    "show": 5,
    "course": 6,
    "commands": 7,
}
DRAWING = {"matplotlib", "ipywidgets", "IPython"}
MODULES = sorted(path for path in LABKIT.rglob("*.py") if path.parent != LABKIT)


def imported(path):
    """Every module that a file imports, wherever in the file the import stands."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide the layer"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def layer(path):
    return path.relative_to(LABKIT).parts[0]


@mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(LABKIT)))
def test_imports_point_down(path):
    mine = LEVEL[layer(path)]
    for name in imported(path):
        parts = name.split(".")
        if parts[0] == "labkit" and len(parts) > 1 and parts[1] in LEVEL:
            assert LEVEL[parts[1]] <= mine, f"{layer(path)} imports {name}"
        if layer(path) in {"run", "measure", "comm", "model"}:
            assert parts[0] not in DRAWING, f"{layer(path)} draws: it imports {name}"
        if layer(path) == "model":
            assert parts[0] != "torch", f"a model imports {name}"


def test_every_folder_has_its_level():
    assert {path.parent.name for path in LABKIT.glob("*/__init__.py")} == set(LEVEL)


def test_a_wrong_arrow_would_be_seen(tmp_path):
    wrong = tmp_path / "wrong.py"
    wrong.write_text("def f():\n    from labkit.show import plots\n    import torch.nn")
    assert list(imported(wrong)) == ["labkit.show.plots", "torch.nn"]
