"""Observe ranks: time, CPU use, bytes on the wire, and the records that keep them.

Names and modules are loaded when they are asked for: ``from labkit.measure import Tracer, wire``.
"""

import importlib
from typing import Any

_HOMES = {
    **dict.fromkeys(("CallLog",), "calls"),
    **dict.fromkeys(("Provenance", "Record", "Tier"), "records"),
    **dict.fromkeys(("Table",), "tables"),
    **dict.fromkeys(("Timeline", "save_chrome"), "timeline"),
    **dict.fromkeys(("time_calls", "summarize"), "timing"),
    **dict.fromkeys(("Kind", "Tracer"), "trace"),
}
_MODULES = {*_HOMES.values(), "sched", "wire"}
__all__ = sorted([*_HOMES, *_MODULES])


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(f"{__name__}.{_HOMES.get(name, name)}")
    return getattr(module, name) if name in _HOMES else module


def __dir__() -> list[str]:
    return __all__
