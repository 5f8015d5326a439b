"""Send ResNet50's state in different ways and time them in turn: the programs that ranks run."""

import ctypes
import resource
import time
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
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
"""Ways by name: arguments of `broadcast`; what else they may say is explained at `time_ways`."""
OWN = "flat", "kept", "huge"
"""What a way may say that is not passed on."""
ALONE, KEPT, FLAT, HUGE = {"in_flight": 1}, {"kept": True}, {"flat": True}, {"huge": True}
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
    "E": {
        "all in one, huge pages": WHOLE | HUGE,
        "25 MB, huge pages": PARTS | HUGE,
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
    # not full_like: of a tensor on the meta device it imports a second's worth of modules
    tensors = [torch.full(x.shape, fill, dtype=x.dtype, device=device()) for x in shaped]
    if flat:
        for bucket in buckets.plan(tensors, cap=None):
            buckets.as_one_buffer([tensors[place] for place in bucket.members])
    return tensors


def time_ways(send: Callable, ways: Ways, width: float, iters: int) -> list[dict[str, Any]]:
    """Time ways to broadcast the state in turn, so that a disturbance meets all of them.

    Args:
        send: ``send(tensors, **arguments)``, such as `broadcast`.
        ways: Arguments by name. Three are not passed on: ``flat`` moves the state into one buffer
            beforehand, ``kept`` keeps buffers from one broadcast to the next (a number: so many),
            ``huge`` gives it new memory in huge pages. Where one way has that, the others have
            pages of 4 KiB, whatever Linux gives by itself.
        width: Of the network.
        iters: Broadcasts of each way, after a first one that is not counted. The values are looked
            at after the last.

    Returns:
        For each way ``samples`` in seconds, and of a broadcast ``faults``, its page faults,
        ``system``, its seconds of CPU time in Linux's kernel, and ``peak``, the most bytes of new
        tensors at a time.

    Raises:
        AssertionError: Some values are not rank 0's afterwards.
    """
    take_turns = any(way.get("huge") for way in ways.values())

    def set_pages(way: Mapping[str, Any]) -> None:
        if take_turns:
            give_huge_pages(bool(way.get("huge")))

    set_pages({})
    flats = {name: bool(way.get("flat")) for name, way in ways.items()}
    states = {flat: state(width, flat=flat) for flat in set(flats.values())}
    calls: dict[str, Callable[[], None]] = {}
    results: dict[str, dict[str, Any]] = {}
    for name, way in ways.items():
        set_pages(way)
        calls[name] = partial(send, states[flats[name]], **_arguments(way))
        if way.get("kept"):
            calls[name]()  # makes the buffers: from then on they are not new
        with memory.Allocated() as usage:
            calls[name]()
        results[name] = {"samples": [], "faults": 0.0, "system": 0.0, "peak": usage.peak}
    for number in range(iters):
        is_last = number == iters - 1
        for name, result in results.items():
            set_pages(ways[name])
            tensors = states[flats[name]]
            if is_last:
                for tensor in tensors:
                    tensor.fill_(dist.get_rank())
            before = resource.getrusage(resource.RUSAGE_SELF)
            result["samples"] += time_calls(calls[name], warmup=0, iters=1)
            after = resource.getrusage(resource.RUSAGE_SELF)
            result["faults"] += (after.ru_minflt - before.ru_minflt) / iters
            result["system"] += (after.ru_stime - before.ru_stime) / iters
            if is_last and any(bool(tensor.amax()) for tensor in tensors):
                raise AssertionError(f"{name}: WRONG VALUES on rank {dist.get_rank()}")
    return list(results.values())


def give_huge_pages(given: bool) -> None:
    """Let Linux give this process huge pages from now on, or none (`man 2 prctl`)."""
    set_thp_disable = 41  # PR_SET_THP_DISABLE, linux/prctl.h
    if ctypes.CDLL(None, use_errno=True).prctl(set_thp_disable, int(not given), 0, 0, 0):
        raise OSError(ctypes.get_errno(), "huge pages cannot be switched here")


def _arguments(way: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a way passes on, with new buffers where it keeps some."""
    arguments = {name: value for name, value in way.items() if name not in OWN}
    if kept := way.get("kept"):
        arguments["kept"] = buckets.Kept(None if kept is True else kept, device=device())
    return arguments


def count_faults(send: Callable, way: Mapping[str, Any]) -> int:
    """Broadcast the state twice; return this rank's page faults in the second."""
    call = partial(send, state(1.0), **_arguments(way))
    call()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    call()
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


def add_up(by_threads: int) -> float:
    """Return the seconds in which so many threads of this rank have each run a piece of Python."""

    def piece(_: int) -> int:
        total = 0
        for number in range(3_000_000):
            total += number
        return total

    dist.barrier()
    begin = time.perf_counter()
    with ThreadPoolExecutor(by_threads) as pool:
        list(pool.map(piece, range(by_threads)))
    return time.perf_counter() - begin


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
