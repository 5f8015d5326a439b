"""A reference of labkit's instruments and pictures, as a page of the edition, from docstrings."""

import importlib
import inspect
import pkgutil
import re
from enum import EnumType
from types import ModuleType
from typing import Any

PACKAGES = "labkit.measure", "labkit.show"
_QUOTED = re.compile(r"(: |-> )'([^']*)'")  # an annotation that was not evaluated
_PLACES = re.compile(r"\b(?:[a-z_]\w*\.)+(?=[A-Z])")  # in which modules classes lie


def modules() -> list[ModuleType]:
    """Import every module of the packages."""
    folders = [(f"{name}.", importlib.import_module(name).__path__) for name in PACKAGES]
    names = [m.name for start, folder in folders for m in pkgutil.iter_modules(folder, start)]
    return [importlib.import_module(name) for name in names]


def public(owner: ModuleType | type, module: str) -> dict[str, Any]:
    """What a module, or a class of it, has for others: ``__all__``, or what is defined there."""
    if hasattr(owner, "__all__"):
        return {name: getattr(owner, name) for name in owner.__all__}
    members = {name: inspect.getattr_static(owner, name) for name in vars(owner) if name[0] != "_"}
    codes = {name: getattr(value, "fget", value) for name, value in members.items()}
    return {n: members[n] for n, code in codes.items() if getattr(code, "__module__", "") == module}


def page() -> str:
    """Write the page, in Markdown: a heading for each module, and for each of its names."""
    parts = ["# Reference of labkit.measure and labkit.show"]
    for module in modules():
        parts += [f"## {module.__name__}", f"```text\n{inspect.getdoc(module)}\n```"]
        for name, value in public(module, module.__name__).items():
            parts += [f"### {module.__name__}.{name}", _entry(name, value)]
            if isinstance(value, type) and not isinstance(value, EnumType):
                members = public(value, value.__module__)
                parts += [_entry(f"{name}.{key}", member) for key, member in members.items()]
    return "\n\n".join(parts) + "\n"


def _entry(name: str, value: Any) -> str:
    """Write how a thing is called, and its docstring; of a constant what it is."""
    value = getattr(value, "__func__", value)  # of a method of the class
    if not (callable(value) or isinstance(value, property)):
        return f"```python\n{name}: {type(value).__name__}\n```"
    if isinstance(value, EnumType):
        name += f": {', '.join(value.__members__)}"
    elif not isinstance(value, property) and not _is_error(value):
        name += _PLACES.sub("", _QUOTED.sub(r"\1\2", str(inspect.signature(value))))
    return f"```python\n{name}\n```\n\n```text\n{inspect.getdoc(value)}\n```"


def _is_error(value: Any) -> bool:
    return isinstance(value, type) and issubclass(value, Exception)
