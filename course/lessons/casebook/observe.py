"""What is noted on a rank while a case's program runs: its phases, and one instrument's readings.

The phases are noted whatever is asked: a careful author would have put them into the program. The
instruments are those of the earlier lessons.
"""

import contextlib
import os
import socket
import threading
from collections.abc import Callable, Iterator
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


def observed(program: Callable, fix: Callable, instrument: str, notes: str) -> dict[str, Any]:
    """Run a case's program on this rank under one instrument.

    In the folder `notes` each rank keeps in which call it stands, as the program may never end.
    """
    tracer = Tracer(Clock(0.0, 0.0), dist.get_rank())
    phase = partial(tracer.span, kind=Kind.COMPUTE)  # only names and times are read
    dist.barrier()
    before = _through()
    with _TOOLS.get(instrument, contextlib.nullcontext)() as tool, _standing(notes):
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


@contextlib.contextmanager
def _standing(folder: str) -> Iterator[None]:
    """Write down, again and again, which call of this rank has not ended, and its peer."""
    ended, file = threading.Event(), Path(folder, str(dist.get_rank()))

    def write() -> None:
        while not ended.wait(0.25):
            open_calls = [f"{x.kind} {x.peer}" for x in log.calls if x.waited is None]
            file.write_text(open_calls[-1] if open_calls else "")

    with calls.CallLog() as log:
        threading.Thread(target=write, daemon=True).start()
        try:
            yield
        finally:
            ended.set()


def waits(folder: str) -> dict[int, tuple[str, int]]:
    """Return in which call each rank stood, and with which peer (-1: with all), by rank."""
    by_rank = {int(file.name): file.read_text().split() for file in Path(folder).iterdir()}
    return {rank: (words[0], int(words[1])) for rank, words in by_rank.items() if len(words) == 2}


def _through() -> dict[str, int]:
    """Return what left through each network interface but loopback, in bytes: `ip -s link`."""
    counters = Path("/proc/self/net/dev")
    lines = counters.read_text().splitlines()[2:] if counters.exists() else []
    counts = {name.strip(): rest.split() for name, _, rest in (ln.partition(":") for ln in lines)}
    return {name: int(count[8]) for name, count in counts.items() if name != "lo"}
