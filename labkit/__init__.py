"""labkit: run, measure and explain distributed communication from a notebook cell.

Everything is imported when it is first used: `import labkit` takes neither torch nor matplotlib.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from labkit.fabric.errors import FabricUnavailable
    from labkit.fabric.fabric import Fabric
    from labkit.measure import sched, wire
    from labkit.measure.calls import CallLog
    from labkit.measure.records import Record
    from labkit.measure.timeline import Timeline
    from labkit.measure.timing import slowest, summarize, time_calls
    from labkit.measure.trace import Kind, Tracer
    from labkit.ranks.devices import device
    from labkit.ranks.errors import LaunchError, LaunchTimeout, RankDied, RankError
    from labkit.ranks.launcher import Launcher, launch

__version__ = "2.0.0"
__all__ = [
    "CallLog", "Fabric", "FabricUnavailable", "Kind", "LaunchError", "LaunchTimeout", "Launcher",
    "RankDied", "RankError", "Record", "Timeline", "Tracer", "device", "launch", "sched", "slowest",
    "summarize", "time_calls", "wire",
]  # fmt: skip
_HOMES = {
    "Fabric": "fabric.fabric",
    "FabricUnavailable": "fabric.errors",
    **dict.fromkeys(("slowest", "summarize", "time_calls"), "measure.timing"),
    **dict.fromkeys(("Kind", "Tracer"), "measure.trace"),
    "CallLog": "measure.calls",
    "Record": "measure.records",
    "Timeline": "measure.timeline",
    "sched": "measure.sched",
    "wire": "measure.wire",
    "device": "ranks.devices",
    **dict.fromkeys(("LaunchError", "LaunchTimeout", "RankDied", "RankError"), "ranks.errors"),
    **dict.fromkeys(("Launcher", "launch"), "ranks.launcher"),
}
"""The module of each name that labkit exports; two are modules themselves."""


if not TYPE_CHECKING:  # checkers would believe in any name

    def __getattr__(name: str) -> Any:
        if name not in _HOMES:
            raise AttributeError(f"module 'labkit' has no attribute {name!r}")
        module = importlib.import_module(f"labkit.{_HOMES[name]}")
        return getattr(module, name, module)


def __dir__() -> list[str]:
    return __all__
