"""What is noted on a rank while a case's program runs: its phases, and one instrument's readings.

The phases are noted whatever is asked: a careful author would have put them into the program. The
instruments are those of the earlier lessons.
"""

import contextlib
import os
import socket
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from labkit.measure import calls, sched, wire
from labkit.measure.trace import Clock, Kind, Tracer

_TOOLS = {"wire meter": wire.meter, "scheduler": sched.watch, "call counts": calls.CallLog}
INSTRUMENTS = ("timeline", *_TOOLS, "per-rank timers", "environment")
_PREFIXES = ("GLOO_", "TORCH_GLOO_", "NCCL_", "OMP_")


def observed(program: Callable, fix: Callable, instrument: str) -> dict[str, Any]:
    """Run a case's program on this rank under one instrument."""
    tracer = Tracer(Clock(0.0, 0.0), dist.get_rank())
    phase = partial(tracer.span, kind=Kind.COMPUTE)  # only names and times are read
    dist.barrier()
    before = _through()
    with _TOOLS.get(instrument, contextlib.nullcontext)() as tool:
        result = program(phase, fix)
    seen = {
        "rank": dist.get_rank(),
        "result": result,
        "spans": tracer.trace().spans,
        "cpus": sorted(os.sched_getaffinity(0)),
        "threads": torch.get_num_threads(),
        "interfaces": [name for _, name in socket.if_nameindex()],
        "variables": {k: v for k, v in os.environ.items() if k.startswith(_PREFIXES)},
    }
    if instrument == "wire meter":
        seen["report"] = tool.report
        seen["through"] = {name: sent - before[name] for name, sent in _through().items()}
    elif instrument == "scheduler":
        seen["usage"] = tool
    elif instrument == "call counts":
        seen["calls"] = [call.kind for call in tool.calls]
    return seen


def _through() -> dict[str, int]:
    """Return what left through each network interface but loopback, in bytes: `ip -s link`."""
    counters = Path("/proc/self/net/dev")
    lines = counters.read_text().splitlines()[2:] if counters.exists() else []
    counts = {name.strip(): rest.split() for name, _, rest in (ln.partition(":") for ln in lines)}
    return {name: int(count[8]) for name, count in counts.items() if name != "lo"}
