"""Observe ranks: time, CPU use, bytes on the wire, and the records that keep them.

Names and modules are loaded when they are asked for: ``from labkit.measure import Tracer, wire``.
"""

from typing import TYPE_CHECKING

from labkit import _lazily

if TYPE_CHECKING:
    from labkit.measure import calls, records, sched, tables, timeline, timing, trace, wire
    from labkit.measure.calls import CallLog
    from labkit.measure.records import Provenance, Record, Tier
    from labkit.measure.tables import Table
    from labkit.measure.timeline import Timeline, save_chrome
    from labkit.measure.timing import slowest, summarize, time_calls
    from labkit.measure.trace import Kind, Tracer
else:
    __getattr__, __dir__ = _lazily.exports(__name__)

__all__ = [
    "CallLog",
    "Kind",
    "Provenance",
    "Record",
    "Table",
    "Tier",
    "Timeline",
    "Tracer",
    "calls",
    "records",
    "save_chrome",
    "sched",
    "slowest",
    "summarize",
    "tables",
    "time_calls",
    "timeline",
    "timing",
    "trace",
    "wire",
]
