"""Send ResNet50's state in different ways and time them in turn: the programs that ranks run."""

import resource
import time
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist

from course.checks import memory
from course.comm import buckets, shapes
from course.comm.buckets import MB
from labkit.measure.timing import time_calls
from labkit.ranks.devices import device

CURVE: dict[str, dict[str, Any]] = {
    "one by one": {"cap": 0, "in_flight": 1},
    "1 MB": {"cap": MB},
    "10 MB": {"cap": 10 * MB},
    "25 MB": {"cap": 25 * MB},
    "all in one": {"cap": None},
}
"""Ways by name: arguments of `broadcast`; ``flat`` and ``kept`` are explained at `time_ways`."""
GAP: dict[str, dict[str, Any]] = {name: CURVE[name] for name in ("all in one", "25 MB")}
"""What is to be explained: the first takes longer. Both pack every byte."""
EXPERIMENTS: dict[str, dict[str, dict[str, Any]]] = {
    "A": {
        "all in one, kept": {"cap": None, "in_flight": 1, "kept": True},
        "25 MB, kept, one at a time": {"cap": 25 * MB, "in_flight": 1, "kept": True},
    },
    "B": {
        "25 MB, one at a time": {"cap": 25 * MB, "in_flight": 1},
        "25 MB": CURVE["25 MB"],
    },
    "C": {
        "all in one": CURVE["all in one"],
        "all in one, kept": {"cap": None, "in_flight": 1, "kept": True},
    },
    "D": {
        "flat state, all in one": {"cap": None, "in_flight": 1, "flat": True},
        "flat state, 25 MB": {"cap": 25 * MB, "in_flight": 1, "flat": True},
    },
}
"""Pairs by the experiment's name; how much of the gap is left, or goes, is asked of each."""
CALLS: dict[str, dict[str, Any]] = {
    "flat state, 320 calls": {"cap": 0, "in_flight": 1, "flat": True},
    "flat state, 2 calls": {"cap": None, "in_flight": 1, "flat": True},
}
"""What calls cost: nothing is packed."""


def broadcast(tensors, cap, in_flight=2, kept=None):
    """Give rank 0's values to every rank, in buckets of at most `cap` bytes."""
    flying = deque()
    for number, bucket in enumerate(buckets.plan(tensors, cap=cap)):
        members = [tensors[place] for place in bucket.members]
        out = kept.of(number, bucket) if kept else None
        flat = buckets.flatten(members, out=out)
        flying.append((dist.broadcast(flat, 0, async_op=True), flat, members))
        if len(flying) == in_flight:
            work, flat, members = flying.popleft()
            work.wait()
            buckets.unpack(flat, members)
    for work, flat, members in flying:
        work.wait()
        buckets.unpack(flat, members)


def state(width: float, *, flat: bool = False) -> list[torch.Tensor]:
    """Make ResNet50's 320 tensors, filled with the rank's number; `flat`: one buffer a dtype."""
    fill, shaped = dist.get_rank(), shapes.resnet50(width=width)
    tensors = [torch.full_like(tensor, fill, device=device()) for tensor in shaped]
    for bucket in buckets.plan(tensors, cap=None) if flat else []:
        buckets.as_one_buffer([tensors[place] for place in bucket.members])
    return tensors


def time_ways(
    send: Callable,
    ways: Mapping[str, Mapping[str, Any]],
    width: float,
    iters: int,
) -> list[dict[str, Any]]:
    """Time ways to broadcast the state in turn, so that a disturbance meets all of them.

    Args:
        send: ``send(tensors, **arguments)``, such as `broadcast`.
        ways: Arguments by name. Two are not passed on: ``flat`` moves the state into one buffer
            beforehand, ``kept`` keeps buffers from one broadcast to the next (a number: so many).
        width: Of the network.
        iters: Broadcasts of each way, after a first one that is not counted. The values are looked
            at after the first and the last.

    Returns:
        For each way ``samples`` in seconds, ``faults`` and ``peak``: page faults of a broadcast,
        and the most bytes of new tensors at a time.

    Raises:
        AssertionError: Some values are not rank 0's afterwards.
    """
    calls, states = [], {}
    for options in ways.values():
        arguments = dict(options)
        flat, kept = arguments.pop("flat", False), arguments.pop("kept", None)
        if kept:
            arguments["kept"] = buckets.Kept(None if kept is True else kept)
        if flat not in states:
            states[flat] = state(width, flat=flat)
        calls.append((states[flat], arguments))
    results = [{"samples": [], "faults": 0.0, "peak": 0} for _ in ways]
    for round_ in range(iters + 1):
        for (tensors, arguments), result, name in zip(calls, results, ways, strict=True):
            looked_at = round_ in (0, iters)
            for tensor in tensors if looked_at else []:
                tensor.fill_(dist.get_rank())
            before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
            call = partial(send, tensors, **arguments)
            (seconds,) = time_calls(call, warmup=0, iters=1)
            faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
            if looked_at and any(bool(tensor.amax()) for tensor in tensors):
                raise AssertionError(f"{name}: WRONG VALUES on rank {dist.get_rank()}")
            if round_:
                result["samples"].append(seconds)
                result["faults"] += faults / iters
    for (tensors, arguments), result in zip(calls, results, strict=True):
        with memory.Allocated() as usage:
            send(tensors, **arguments)
        result["peak"] = usage.peak
    return results


def _arguments(way: Mapping[str, Any]) -> dict[str, Any]:
    """Return a way's arguments, with buffers where it keeps them."""
    return dict(way) | ({"kept": buckets.Kept()} if way.get("kept") else {})


def count_faults(send: Callable, way: Mapping[str, Any]) -> int:
    """Broadcast the state three times; return this rank's page faults in the third."""
    arguments, tensors = _arguments(way), state(1.0)
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        send(tensors, **arguments)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


Spans = list[tuple[str, int, float, float]]
"""``(what, bucket, begin, end)``, in seconds since the ranks met."""


def watch(
    send: Callable, ways: Mapping[str, Mapping[str, Any]], iters: int = 5
) -> dict[str, list[Spans]]:
    """Broadcast the state in each way, in turn, and note what the time went to on this rank.

    What is noted is what the loop calls: packing, the way of each bucket from its start to the end
    of its wait, unpacking.

    Args:
        send: ``send(tensors, **arguments)``, such as `broadcast`.
        ways: Arguments by name, as for `time_ways`, without ``flat``.
        iters: Broadcasts of each way, after two that are not noted.

    Returns:
        For each way the spans of each broadcast: *packing*, *on its way*, *waiting* and
        *unpacking*. The clock is that of ``time.perf_counter``, which on Linux is one for all
        processes.
    """
    noted: Spans = []
    clock, flying, started = time.perf_counter, {}, []
    plain = buckets.flatten, buckets.unpack, dist.broadcast

    def timed(what: str, number: Callable[..., int], call: Callable) -> Callable:
        def note(*args: Any, **options: Any) -> Any:
            begin, result = clock(), call(*args, **options)
            noted.append((what, number(*args), begin, clock()))
            return result

        return note

    def start(flat: torch.Tensor, *args: Any, **options: Any) -> Any:
        work, number, begin = plain[2](flat, *args, **options), len(started), clock()
        started.append(number)
        flying[flat.data_ptr()] = number  # a later bucket may lie where an earlier one lay

        def wait() -> None:
            waits = clock()
            work.wait()
            noted.append(("waiting", number, waits, clock()))
            noted.append(("on its way", number, begin, clock()))

        return SimpleNamespace(wait=wait)

    tensors, arguments = state(1.0), {name: _arguments(way) for name, way in ways.items()}
    spans: dict[str, list[Spans]] = {name: [] for name in ways}
    try:
        buckets.flatten = timed("packing", lambda *_: len(started), plain[0])
        buckets.unpack = timed("unpacking", lambda flat, *_: flying[flat.data_ptr()], plain[1])
        dist.broadcast = start
        for round_ in range(iters + 2):
            for name in ways:
                noted.clear()
                started.clear()
                dist.barrier()
                met = clock()
                send(tensors, **arguments[name])
                if round_ > 1:
                    since = [(what, n, begin - met, end - met) for what, n, begin, end in noted]
                    spans[name].append(since)
    finally:
        buckets.flatten, buckets.unpack, dist.broadcast = plain
    return spans
