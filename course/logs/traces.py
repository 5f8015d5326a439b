"""Four numbers from Chrome traces of torch.profiler, a file for each rank."""

import gzip
import json
import re
import statistics
from collections.abc import Iterable
from pathlib import Path

from labkit.measure.trace import covered

_COLLECTIVE = re.compile(r"(nccl|gloo|mpi|ucc|xccl)(:|(Dev)?Kernel)", re.IGNORECASE)
_NOT_COMPUTING = re.compile(f"{_COLLECTIVE.pattern}|c10d::|record_param", re.IGNORECASE)
_SMALL = 16_384
"""Elements: up to so many, the shortest call counts as the latency of one."""


def read(path: Path) -> list[dict] | None:
    """Return a trace's complete events; None if the file is no Chrome trace."""
    opened = gzip.open if path.suffix == ".gz" else Path.open
    try:
        with opened(path, "rb") as file:
            events = json.load(file)["traceEvents"]
        return [one for one in events if one.get("ph") == "X" and "dur" in one]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def numbers(ranks: list[list[dict]]) -> dict[str, float | None]:
    """Take the arguments of `triage.place` from the events of all ranks: the median's, per step.

    What a call takes on the rank that takes it fastest is the moving, the rest is waiting; no
    clocks are compared. Of one rank alone the waiting is not known. Kernels of a collective are
    hidden by other kernels only, not by work of the host.

    Raises:
        ValueError: There is no collective in the traces; or only the host's share of NCCL's; or
            they take longer than the steps that are marked.
    """
    calls = [_calls(events) for events in ranks]
    if not all(calls):
        raise ValueError("no collective in the trace: was it recorded while the job trained?")
    if any(one["name"].startswith("nccl:") for mine in calls for one in mine):
        raise ValueError("calls of NCCL without their kernels: record ProfilerActivity.CUDA, too.")
    moving = [min(one["dur"] for one in call) for call in zip(*calls, strict=False)]
    comparable = len(ranks) > 1 and len({len(mine) for mine in calls}) == 1
    steps, exposed, waits = [], [], []
    for events, mine in zip(ranks, calls, strict=True):
        marks = [one["dur"] for one in events if one["name"].startswith("ProfilerStep")]
        count = len(marks) or 1
        ends = [x for one in events for x in (one["ts"], one["ts"] + one["dur"])]
        steps.append((sum(marks) or max(ends) - min(ends)) / count / 1e3)
        kinds = {"kernel"} if mine[0].get("cat") == "kernel" else {"kernel", "cpu_op"}
        others = (one for one in events if not _NOT_COMPUTING.match(one["name"]))
        computing = _times(one for one in others if one.get("cat") in kinds)
        exposed.append((covered([*computing, *_times(mine)]) - covered(computing)) / count / 1e3)
        waits.append((sum(one["dur"] for one in mine) - sum(moving)) / count / 1e3)
    step, lost = statistics.median(steps), statistics.median(exposed)
    if lost > step:
        raise ValueError(
            f"collectives take {lost:.0f} ms for each marked step of {step:.0f} ms: "
            "record every step, and call profile.step() after it."
        )
    wait = min(statistics.median(waits), lost) if comparable else None
    sizes = [(one.get("args") or {}).get("In msg nelems", 0) for one in calls[0]]
    small = [one["dur"] for one, n in zip(calls[0], sizes, strict=True) if 0 < n <= _SMALL]
    latency = len(calls[0]) / count * min(small) / 1e3 if small else None
    return {"step": step, "without": step - lost, "wait": wait, "calls": latency}


def _calls(events: list[dict]) -> list[dict]:
    """Return the collectives in their order: kernels where a GPU ran them, else the host's."""
    collectives = [one for one in events if _COLLECTIVE.match(one.get("name", ""))]
    kernels = [one for one in collectives if one.get("cat") == "kernel"]
    return sorted(kernels or collectives, key=lambda one: one["ts"])


def _times(events: Iterable[dict]) -> list[tuple[float, float]]:
    return [(one["ts"], one["ts"] + one["dur"]) for one in events]
