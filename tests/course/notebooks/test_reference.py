"""The reference of labkit.measure and labkit.show: nothing public is missing on it."""

import ast
import importlib

from pytest import fixture, mark

from course.notebooks import reference
from tests.ranks.nodes import ROOT

FILES = [path for part in ("measure", "show") for path in sorted(ROOT.glob(f"labkit/{part}/*.py"))]
FILES = [path for path in FILES if path.stem != "__init__"]


@fixture(scope="module")
def page():
    return reference.page()


def defined(body):
    """The public functions and classes of a module or a class, as its text has them."""
    kinds = ast.FunctionDef | ast.ClassDef
    return [node for node in body if isinstance(node, kinds) and not node.name.startswith("_")]


@mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_each_public_name_stands_there_with_what_its_docstring_says(path, page):
    module = importlib.import_module(f"labkit.{path.parent.name}.{path.stem}")
    _, _, part = page.partition(f"\n## {module.__name__}\n")
    part, _, _ = part.partition("\n## ")
    for name in getattr(module, "__all__", ()):
        assert f"\n### {module.__name__}.{name}\n" in part
    for node in defined(ast.parse(path.read_text()).body):
        assert f"\n### {module.__name__}.{node.name}\n" in part
        assert ast.get_docstring(node) in part, node.name
        for method in defined(getattr(node, "body", ()) if isinstance(node, ast.ClassDef) else ()):
            assert f"```python\n{node.name}.{method.name}" in part
            assert ast.get_docstring(method) in part, method.name


def test_a_signature_is_written_as_one_reads_it(page):
    assert "```python\nsave(records: Sequence[Record], path: Path | str) -> Path\n```" in page
    assert "\nTier: MEASURED, EMULATED, RECORDED, MODELLED, PUBLISHED\n" in page
    assert "\nINK: str\n" in page and " at 0x" not in page
