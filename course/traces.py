"""Four numbers from Chrome traces: torch.profiler's, a file for each rank, and labkit's own."""

import gzip
import json
import re
import statistics
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from labkit.measure.trace import Kind, covered

_COLLECTIVE = re.compile(r"(nccl|gloo|mpi|ucc|xccl)(:|(Dev)?Kernel)", re.IGNORECASE)
_COMMUNICATION = {"collective", "wait", "move"}
"""Kinds of labkit's spans."""
_SMALL = 16_384
"""Elements: up to so many, the shortest call counts as the latency of one."""


def read(path: Path) -> list[list[dict]] | None:
    """Return a trace's complete events, by rank; None if the file is no Chrome trace."""
    opened = gzip.open if path.suffix == ".gz" else Path.open
    try:
        with opened(path, "rb") as file:
            events = json.load(file)["traceEvents"]
        complete = [one for one in events if one.get("ph") == "X" and "dur" in one]
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    if not any(one.get("cat") in set(Kind) for one in complete):
        return [complete]  # torch.profiler writes a file for each rank
    by_rank = defaultdict(list)
    for one in complete:
        by_rank[one["pid"]].append(one)
    return [by_rank[rank] for rank in sorted(by_rank)]


def numbers(ranks: list[list[dict]]) -> dict[str, float | None]:
    """Take the arguments of `triage.place` from the events of all ranks: the median's, per step.

    Labkit's traces say what is waiting. Else: what a call takes on the rank that takes it fastest
    is the moving, the rest is waiting; no clocks are compared. Of one rank alone the waiting is
    not known.

    Raises:
        ValueError: There is no collective in the traces.
    """
    calls = [_calls(events) for events in ranks]
    if not all(calls):
        raise ValueError("no collective in the trace: was it recorded while the job trained?")
    moving = [min(one["dur"] for one in call) for call in zip(*calls, strict=False)]
    labelled = any(one["cat"] == "wait" for own in calls for one in own)
    comparable = labelled or (len(ranks) > 1 and len({len(own) for own in calls}) == 1)
    steps, exposed, waits = [], [], []
    for events, own in zip(ranks, calls, strict=True):
        marks = [one["dur"] for one in events if one["name"].startswith("ProfilerStep")]
        count = len(marks) or len({(one.get("args") or {}).get("step") for one in own})
        ends = [x for one in events for x in (one["ts"], one["ts"] + one["dur"])]
        steps.append((sum(marks) or max(ends) - min(ends)) / count / 1e3)
        computing = _times(one for one in events if _computes(one))
        hidden = covered(computing)
        exposed.append((covered([*computing, *_times(own)]) - hidden) / count / 1e3)
        whole = sum(one["dur"] for one in own if not labelled or one["cat"] == "wait")
        waits.append((whole - sum(moving) * (not labelled)) / count / 1e3)
    step, lost = statistics.median(steps), statistics.median(exposed)
    wait = min(statistics.median(waits), lost) if comparable else None
    small = [one["dur"] for one in calls[0] if 0 < _elements(one) <= _SMALL]
    latency = len(calls[0]) / count * min(small) / 1e3 if small else None
    return {"step": step, "without": step - lost, "wait": wait, "calls": latency}


def _calls(events: list[dict]) -> list[dict]:
    """Return the collectives in their order: kernels where a GPU ran them, else the host's."""
    found = [
        one
        for one in events
        if one.get("cat") in _COMMUNICATION or _COLLECTIVE.match(one.get("name", ""))
    ]
    kernels = [one for one in found if one.get("cat") == "kernel"]
    return sorted(kernels or found, key=lambda one: one["ts"])


def _computes(event: dict) -> bool:
    own = _COLLECTIVE.match(event["name"]) or event["name"].startswith(("c10d::", "record_param"))
    return event.get("cat") in ("kernel", "cpu_op", "compute", "input", "pack") and not own


def _elements(event: dict) -> int:
    return (event.get("args") or {}).get("In msg nelems") or 0


def _times(events: Iterable[dict]) -> list[tuple[float, float]]:
    return [(one["ts"], one["ts"] + one["dur"]) for one in events]
