"""Import what a package exports when it is asked for.

A package writes its exports once, as imports below ``if TYPE_CHECKING:``, where type checkers and
editors look. At run time `exports` reads the same lines, and follows one when its name is used.
"""

import importlib
import sys
from collections.abc import Callable
from typing import Any


def exports(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return a package's ``__getattr__`` and ``__dir__``.

    Example:
        >>> get, names = exports("labkit")
        >>> get("wire").__name__, "launch" in names()
        ('labkit.measure.wire', True)
    """
    homes: dict[str, str] = {}

    def get(name: str) -> Any:
        if not homes:
            homes.update(_homes(package))
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        if homes[name] == package:
            return importlib.import_module(f"{package}.{name}")
        return getattr(importlib.import_module(homes[name]), name)

    return get, lambda: sorted({*_homes(package), *vars(sys.modules[package])})


def _homes(package: str) -> dict[str, str]:
    """Return the module that each name is imported from below ``if TYPE_CHECKING:``."""
    import ast

    spec = sys.modules[package].__spec__
    source = getattr(spec and spec.loader, "get_source")(package)  # noqa: B009  (not all have it)
    blocks = [node.body for node in ast.parse(source).body if isinstance(node, ast.If)]
    lines = [node for block in blocks for node in block if isinstance(node, ast.ImportFrom)]
    return {alias.name: str(node.module) for node in lines for alias in node.names}
