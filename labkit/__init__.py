"""labkit: run, measure and explain distributed communication from a notebook cell.

Everything is imported when it is first used: `import labkit` takes neither torch nor matplotlib.
"""

from typing import TYPE_CHECKING

from labkit import _lazily

if TYPE_CHECKING:
    from labkit import fabric as fabric
    from labkit import measure as measure
    from labkit import ranks as ranks
    from labkit import show as show
    from labkit.fabric.fabric import Fabric, FabricUnavailable
    from labkit.measure import sched, wire
    from labkit.measure.calls import CallLog
    from labkit.measure.records import Record
    from labkit.measure.timeline import Timeline
    from labkit.measure.timing import slowest, summarize, time_calls
    from labkit.measure.trace import Tracer
    from labkit.ranks.devices import device
    from labkit.ranks.errors import LaunchError, LaunchTimeout, RankDied, RankError
    from labkit.ranks.launcher import Launcher, launch
else:
    __getattr__, __dir__ = _lazily.exports(__name__)

__version__ = "2.0.0"
__all__ = [
    "CallLog",
    "Fabric",
    "FabricUnavailable",
    "LaunchError",
    "LaunchTimeout",
    "Launcher",
    "RankDied",
    "RankError",
    "Record",
    "Timeline",
    "Tracer",
    "device",
    "launch",
    "sched",
    "slowest",
    "summarize",
    "time_calls",
    "wire",
]
