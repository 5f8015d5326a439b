"""How busy the whole machine was during a block: the others count too.

``/proc/stat`` adds up, over all CPUs and in ticks of usually 10 ms, what they spent their time on.
All but idle time is busy; ``steal`` is time that a hypervisor gave to another machine.
Source: proc_stat(5).
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_STAT = Path("/proc/stat")


@dataclass(slots=True)
class Load:
    """Filled in when the block ends."""

    busy: float | None = None
    """CPUs' worth of time that was not idle; None where the system does not tell."""


@contextlib.contextmanager
def watch() -> Iterator[Load]:
    """Account for what all CPUs did during the block.

    Example:
        >>> with watch() as load:
        ...     total = sum(range(10_000_000))
        >>> load.busy > 0
        True
    """
    load, before, start = Load(), _busy_seconds(), time.perf_counter()
    try:
        yield load
    finally:
        after, wall = _busy_seconds(), time.perf_counter() - start
        if before is not None and after is not None:
            load.busy = (after - before) / wall


def _busy_seconds() -> float | None:
    try:
        fields = _STAT.read_text().splitlines()[0].split()[1:9]
    except OSError:
        return None
    user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, fields)
    ticks = user + nice + system + irq + softirq + steal
    return ticks / os.sysconf("SC_CLK_TCK")
