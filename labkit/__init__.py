"""labkit: run, measure and explain distributed communication from a notebook cell.

Everything is imported when it is first used: `import labkit` takes neither torch nor matplotlib.
"""

import importlib
from typing import Any

__version__ = "2.0.0"
_HOMES = {
    "ranks.launcher": ("Launcher", "launch"),
    "ranks.errors": ("LaunchError", "LaunchTimeout", "RankDied", "RankError"),
    "fabric.fabric": ("Fabric", "FabricUnavailable"),
    "measure.calls": ("CallLog",),
    "measure.records": ("Record",),
    "measure.timeline": ("Timeline",),
    "measure.timing": ("slowest", "summarize", "time_calls"),
    "measure.trace": ("Tracer",),
}
_MODULES = {name: name for name in ("ranks", "fabric", "measure", "show", "logs")}
_MODULES |= {"sched": "measure.sched", "wire": "measure.wire"}
__all__ = sorted(["sched", "wire", *(name for names in _HOMES.values() for name in names)])


def __getattr__(name: str) -> Any:
    """Import what is asked for: a name from its home, or a module."""
    for home, names in _HOMES.items():
        if name in names:
            return getattr(importlib.import_module(f"labkit.{home}"), name)
    if name in _MODULES:
        return importlib.import_module(f"labkit.{_MODULES[name]}")
    raise AttributeError(f"module 'labkit' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
