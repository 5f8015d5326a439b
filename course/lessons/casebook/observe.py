"""What is noted on a rank while a case's program runs: its phases, and one instrument's readings.

`Watch` runs on every rank, whatever is asked: it is what a careful author would have put into the
program. The instruments are those of the earlier lessons.
"""

import contextlib
import fcntl
import os
import socket
import struct
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from labkit.measure import calls, sched, wire

INSTRUMENTS = (
    "case file",
    "timeline",
    "wire meter",
    "scheduler",
    "call counts",
    "per-rank timers",
    "environment",
)
_SIOCGIFADDR = 0x8915  # ioctl: the IPv4 address of an interface
_PREFIXES = ("GLOO_", "TORCH_GLOO_", "NCCL_", "OMP_")


@dataclass(frozen=True, slots=True)
class Stretch:
    """One stretch of a phase on a rank, on this machine's clock. Seconds."""

    phase: str
    begin: float
    end: float
    cpu: float
    """What all threads of the rank computed meanwhile."""

    @property
    def seconds(self) -> float:
        """How long it took."""
        return self.end - self.begin


@dataclass(slots=True)
class Watch:
    """One rank's stopwatch: which phase, from when to when."""

    spans: list[Stretch] = field(default_factory=list)

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Note how long the block takes."""
        begin, used = time.perf_counter(), time.process_time()
        try:
            yield
        finally:
            end, cpu = time.perf_counter(), time.process_time() - used
            self.spans.append(Stretch(name, begin, end, cpu))


def observed(program: Callable, fix: Callable, instrument: str) -> dict[str, Any]:
    """Run a case's program on this rank under one instrument; runs on every rank.

    For the case file it runs the program again and again, until the launcher's time is up.
    """
    watch = Watch()
    seen: dict[str, Any] = {"rank": dist.get_rank()}
    dist.barrier()
    while instrument == "case file":
        program(Watch(), fix)
    tools = {"wire meter": wire.meter, "scheduler": sched.watch, "call counts": calls.CallLog}
    before = _through()
    with tools.get(instrument, contextlib.nullcontext)() as tool:
        seen["result"] = program(watch, fix)
    seen |= {"spans": watch.spans, "cpus": sorted(os.sched_getaffinity(0))}
    seen["threads"] = torch.get_num_threads()
    if instrument == "wire meter":
        seen["report"] = tool.report
        seen["through"] = {name: sent - before[name] for name, sent in _through().items()}
    elif instrument == "scheduler":
        seen["usage"] = tool
    elif instrument == "call counts":
        seen["calls"] = [call.kind for call in tool.calls]
    elif instrument == "environment":
        seen["interfaces"] = _interfaces()
        seen["variables"] = {k: v for k, v in os.environ.items() if k.startswith(_PREFIXES)}
    return seen


def _through() -> dict[str, int]:
    """Return what left through each network interface but loopback, in bytes: `ip -s link`."""
    counters = Path("/proc/self/net/dev")
    lines = counters.read_text().splitlines()[2:] if counters.exists() else []
    counts = {name.strip(): rest.split() for name, _, rest in (ln.partition(":") for ln in lines)}
    return {name: int(count[8]) for name, count in counts.items() if name != "lo"}


def _interfaces() -> dict[str, str]:
    """Return the IPv4 address of every interface that has one."""
    found = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):
                asked = struct.pack("256s", name.encode())
                found[name] = socket.inet_ntoa(fcntl.ioctl(sock, _SIOCGIFADDR, asked)[20:24])
    return found
