"""Send ResNet50's state in different ways and time them in turn: the programs that ranks run."""

import resource
import time
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist

from course.checks import memory
from course.comm import buckets, shapes
from course.comm.buckets import MB
from labkit.measure.timing import time_calls
from labkit.ranks.devices import device

Ways = dict[str, dict[str, Any]]
"""Ways by name: arguments of `broadcast`; ``flat`` and ``kept`` are explained at `time_ways`."""
ALONE, KEPT, FLAT = {"in_flight": 1}, {"kept": True}, {"flat": True}
WHOLE, PARTS = {"cap": None}, {"cap": 25 * MB}
CURVE: Ways = {
    "one by one": {"cap": 0} | ALONE,
    "1 MB": {"cap": MB},
    "10 MB": {"cap": 10 * MB},
    "25 MB": PARTS,
    "all in one": WHOLE,
}
GAP: Ways = {"all in one": WHOLE, "25 MB": PARTS}
"""What is to be explained: the first takes longer. Both pack every byte."""
EXPERIMENTS: dict[str, Ways] = {
    "A": {
        "all in one, kept": WHOLE | ALONE | KEPT,
        "25 MB, kept, one at a time": PARTS | ALONE | KEPT,
    },
    "B": {"25 MB, one at a time": PARTS | ALONE, "25 MB": PARTS},
    "C": {"all in one": WHOLE, "all in one, kept": WHOLE | ALONE | KEPT},
    "D": {
        "flat state, all in one": WHOLE | ALONE | FLAT,
        "flat state, 25 MB": PARTS | ALONE | FLAT,
    },
}
"""Pairs by the experiment's name; how much of the gap is left, or goes, is asked of each."""
CALLS: Ways = {
    "flat state, 320 calls": {"cap": 0} | ALONE | FLAT,
    "flat state, 2 calls": WHOLE | ALONE | FLAT,
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


def time_ways(send: Callable, ways: Ways, width: float, iters: int) -> list[dict[str, Any]]:
    """Time ways to broadcast the state in turn, so that a disturbance meets all of them.

    Args:
        send: ``send(tensors, **arguments)``, such as `broadcast`.
        ways: Arguments by name. Two are not passed on: ``flat`` moves the state into one buffer
            beforehand, ``kept`` keeps buffers from one broadcast to the next (a number: so many).
        width: Of the network.
        iters: Broadcasts of each way, after a first one that is not counted. The values are looked
            at after the last.

    Returns:
        For each way ``samples`` in seconds, ``faults`` and ``peak``: page faults of a broadcast,
        and the most bytes of new tensors at a time.

    Raises:
        AssertionError: Some values are not rank 0's afterwards.
    """
    flats = [bool(way.get("flat")) for way in ways.values()]
    states = {flat: state(width, flat=flat) for flat in set(flats)}
    calls, results = [], []
    for flat, way in zip(flats, ways.values(), strict=True):
        call = partial(send, states[flat], **_arguments(way))
        if way.get("kept"):
            call()  # makes the buffers: from then on they are not new
        with memory.Allocated() as usage:
            call()
        calls.append(call)
        results.append({"samples": [], "faults": 0.0, "peak": usage.peak})
    for left in reversed(range(iters)):
        for name, flat, call, result in zip(ways, flats, calls, results, strict=True):
            looked_at = [] if left else states[flat]
            for tensor in looked_at:
                tensor.fill_(dist.get_rank())
            before = _faults()
            result["samples"] += time_calls(call, warmup=0, iters=1)
            result["faults"] += (_faults() - before) / iters
            if any(bool(tensor.amax()) for tensor in looked_at):
                raise AssertionError(f"{name}: WRONG VALUES on rank {dist.get_rank()}")
    return results


def _arguments(way: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a way passes on, with new buffers where it keeps some."""
    arguments = {name: value for name, value in way.items() if name not in ("flat", "kept")}
    if kept := way.get("kept"):
        arguments["kept"] = buckets.Kept(None if kept is True else kept)
    return arguments


def _faults() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def count_faults(send: Callable, way: Mapping[str, Any]) -> int:
    """Broadcast the state twice; return this rank's page faults in the second."""
    call = partial(send, state(1.0), **_arguments(way))
    call()
    before = _faults()
    call()
    return _faults() - before


Spans = list[tuple[str, int, float, float]]
"""``(what, bucket, begin, end)``, in seconds since the ranks met."""


def watch(send: Callable, ways: Ways, iters: int) -> dict[str, list[Spans]]:
    """Broadcast the state in each way, in turn, and note what the time went to on this rank.

    `send` and `ways` are those of `time_ways`, without ``flat``; of each way `iters` broadcasts are
    noted, after one that is not.

    Returns:
        For each way the spans of each broadcast: *packing*, *on its way* (each bucket from its
        start to the end of its wait), *waiting* and *unpacking*. The clock is that of
        ``time.perf_counter``, which on Linux is one for all processes.
    """
    noted: Spans = []
    clock, flying, started, plain = time.perf_counter, {}, [], dist.broadcast

    def timed(what: str, number: Callable[..., int], call: Callable) -> Callable:
        def note(*args: Any, **options: Any) -> Any:
            begin, result = clock(), call(*args, **options)
            noted.append((what, number(*args), begin, clock()))
            return result

        return note

    def start(flat: torch.Tensor, *args: Any, **options: Any) -> Any:
        work, number, begin = plain(flat, *args, **options), len(started), clock()
        started.append(number)
        flying[flat.data_ptr()] = number  # a later bucket may lie where an earlier one lay

        def wait() -> None:
            waits = clock()
            work.wait()
            noted.append(("waiting", number, waits, clock()))
            noted.append(("on its way", number, begin, clock()))

        return SimpleNamespace(wait=wait)

    pack = timed("packing", lambda *_: len(started), buckets.flatten)
    unpack = timed("unpacking", lambda flat, *_: flying[flat.data_ptr()], buckets.unpack)
    tensors = state(1.0)
    calls = {name: partial(send, tensors, **_arguments(way)) for name, way in ways.items()}
    spans: dict[str, list[Spans]] = {name: [] for name in ways}
    replaced = mock.patch.multiple(buckets, flatten=pack, unpack=unpack)
    with replaced, mock.patch.object(dist, "broadcast", start):
        for round_ in range(iters + 1):
            for name, call in calls.items():
                noted.clear()
                started.clear()
                dist.barrier()
                met = clock()
                call()
                if round_:
                    since = [(what, n, begin - met, end - met) for what, n, begin, end in noted]
                    spans[name].append(since)
    return spans
