"""labkit: run, measure and explain distributed communication from a notebook cell.

Everything is imported when it is first used: `import labkit` takes neither torch nor matplotlib.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from labkit.fabric.errors import FabricUnavailable as FabricUnavailable
    from labkit.fabric.fabric import Fabric as Fabric
    from labkit.measure import sched as sched
    from labkit.measure import wire as wire
    from labkit.measure.calls import CallLog as CallLog
    from labkit.measure.records import Record as Record
    from labkit.measure.timeline import Timeline as Timeline
    from labkit.measure.timing import slowest as slowest
    from labkit.measure.timing import summarize as summarize
    from labkit.measure.timing import time_calls as time_calls
    from labkit.measure.trace import Kind as Kind
    from labkit.measure.trace import Tracer as Tracer
    from labkit.ranks.devices import device as device
    from labkit.ranks.errors import LaunchError as LaunchError
    from labkit.ranks.errors import LaunchTimeout as LaunchTimeout
    from labkit.ranks.errors import RankDied as RankDied
    from labkit.ranks.errors import RankError as RankError
    from labkit.ranks.launcher import Launcher as Launcher
    from labkit.ranks.launcher import launch as launch

__version__ = "2.0.0"
_HOMES = {
    "CallLog": "measure.calls",
    "Fabric": "fabric.fabric",
    "FabricUnavailable": "fabric.errors",
    "Kind": "measure.trace",
    "LaunchError": "ranks.errors",
    "LaunchTimeout": "ranks.errors",
    "Launcher": "ranks.launcher",
    "RankDied": "ranks.errors",
    "RankError": "ranks.errors",
    "Record": "measure.records",
    "Timeline": "measure.timeline",
    "Tracer": "measure.trace",
    "device": "ranks.devices",
    "launch": "ranks.launcher",
    "sched": "measure.sched",
    "slowest": "measure.timing",
    "summarize": "measure.timing",
    "time_calls": "measure.timing",
    "wire": "measure.wire",
}
"""The module of each name that labkit exports; two are modules themselves."""
__all__ = list(_HOMES)


if not TYPE_CHECKING:  # checkers would believe in any name

    def __getattr__(name: str) -> Any:
        if name not in _HOMES:
            raise AttributeError(f"module 'labkit' has no attribute {name!r}")
        module = importlib.import_module(f"labkit.{_HOMES[name]}")
        return getattr(module, name, module)


def __dir__() -> list[str]:
    return __all__
