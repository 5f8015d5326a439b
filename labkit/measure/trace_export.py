"""Write a timeline as Chrome trace JSON, which https://ui.perfetto.dev opens.

Format: "Trace Event Format" (Google, 2016): complete events (``ph: X``) with times in
microseconds, ``pid`` = rank, ``tid`` = channel. torch.profiler writes the same format on a clock of
its own; a marker that both have recorded puts the two onto one clock.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from labkit.measure.timeline import Timeline
from labkit.measure.trace import MAIN, NETWORK, Kind, Tracer

MARKER = "labkit clock marker"
_THREAD = {MAIN: 1, NETWORK: 2}


def chrome_events(timeline: Timeline) -> list[dict]:
    """Return the timeline as a list of trace events; time 0 is its first span's begin."""
    events = []
    for rank in timeline.ranks:
        events.append(_name("process_name", rank, 0, f"rank {rank}"))
        events += [_name("thread_name", rank, tid, name) for name, tid in _THREAD.items()]
    for span in timeline.split().spans:
        detail = {"step": span.step, "call": span.call, "nbytes": span.nbytes}
        events.append(
            {
                "ph": "X",
                "name": span.name,
                "cat": str(span.kind),
                "pid": span.rank,
                "tid": _THREAD[span.channel],
                "ts": (span.begin - timeline.begin) * 1e6,
                "dur": span.seconds * 1e6,
                "args": {key: value for key, value in detail.items() if value is not None},
            }
        )
    return events


def save_chrome(
    timeline: Timeline, path: str | Path, *, profiles: Mapping[int, str] | None = None
) -> Path:
    """Save the timeline for Perfetto, merged with torch.profiler's traces where given.

    Args:
        timeline: what to save.
        path: the file to write.
        profiles: by rank, the text of that rank's ``profiler.export_chrome_trace``. The profiled
            block must contain a `clock_marker` of the rank's tracer.

    Returns:
        The path.

    Raises:
        ValueError: a profile or its rank's trace has no clock marker.
    """
    events = chrome_events(timeline)
    for rank, text in (profiles or {}).items():
        events += _profile_events(timeline, rank, json.loads(text)["traceEvents"])
    path = Path(path)
    path.write_text(json.dumps({"displayTimeUnit": "ms", "traceEvents": events}))
    return path


@contextmanager
def clock_marker(tracer: Tracer) -> Iterator[None]:
    """Record one short span both in ``tracer`` and in the torch profiler that is running."""
    from torch.profiler import record_function

    with tracer.span(MARKER, Kind.COMPUTE), record_function(MARKER):
        yield


def _profile_events(timeline: Timeline, rank: int, events: list[dict]) -> Iterator[dict]:
    ours = [s.begin for s in timeline.of(rank) if s.name == MARKER]
    theirs = [e["ts"] for e in events if e.get("name") == MARKER and "ts" in e]
    if not ours or not theirs:
        raise ValueError(
            f"rank {rank}: no clock marker in {'the profile' if ours else 'the trace'}. Put "
            "`with clock_marker(tracer): pass` inside the profiled block."
        )
    shift = (min(ours) - timeline.begin) * 1e6 - min(theirs)
    process = 1000 + rank  # beside the timeline's own processes, not among their threads
    yield _name("process_name", process, 0, f"rank {rank}: torch.profiler")
    for event in events:
        if event.get("ph") == "X":
            yield event | {"pid": process, "ts": event["ts"] + shift}


def _name(what: str, pid: int, tid: int, name: str) -> dict:
    return {"ph": "M", "name": what, "pid": pid, "tid": tid, "args": {"name": name}}
