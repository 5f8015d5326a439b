"""What ranks run in lesson 01: pairs, ways in which partners sum, and the posted script.

A way is a function ``way(tensors, group)`` that replaces every tensor, in place, by the sum of both
partners' tensors. The ways are meant to be read: the differences between them are the lesson.
"""

import contextlib
import datetime
import os
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import chain, product, zip_longest
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from course.comm.collectives import shared_memory, synchronize
from labkit import device
from labkit.measure import sched, timing, wire
from labkit.ranks import affinity

SHAPE = (10, 10)
ROUNDS, BLOCKS = 3, 2  # of `each_way`
Way = Callable[[list[torch.Tensor], Any], None]


def pair_group(*, across: bool = False) -> Any:
    """Make a process group for each pair of ranks; return this rank's. All ranks call it.

    Partners are consecutive ranks; with `across` each rank of the first half has its partner in the
    second half. A `ValueError` says that their number is odd: somebody would have no partner.
    """
    rank, world_size = dist.get_rank(), dist.get_world_size()
    if world_size % 2:
        raise ValueError(f"pairs need an even world_size, got {world_size}.")
    half = world_size // 2
    pairs = [[k, k + half] if across else [2 * k, 2 * k + 1] for k in range(half)]
    groups = [dist.new_group(pair) for pair in pairs]
    return groups[rank % half if across else rank // 2]


def blocking(tensors: list[torch.Tensor], group: Any) -> None:
    """Sum one tensor after the other and wait for each: what the asker did."""
    for tensor in tensors:
        dist.all_reduce(tensor, group=group)


def asynchronous(tensors: list[torch.Tensor], group: Any) -> None:
    """Start all sums, then wait for all: still one call per tensor, but no idling between them."""
    works = [dist.all_reduce(tensor, group=group, async_op=True) for tensor in tensors]
    for work in works:
        work.wait()


def fused(tensors: list[torch.Tensor], group: Any) -> None:
    """Copy all tensors into one, sum that in a single call, and copy the results back."""
    flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
    dist.all_reduce(flat, group=group)
    parts = flat.split([tensor.numel() for tensor in tensors])
    # One call for all copies: a Python loop over 1024 of them would cost more than the sum.
    torch._foreach_copy_(tensors, [p.view_as(t) for p, t in zip(parts, tensors, strict=True)])


def shared_sum(
    tensor: torch.Tensor, slots: torch.Tensor, me: int, turn: int, wake: Callable, wait: Callable
) -> None:
    """Write your slot, wake the partner, wait to be woken, add the partner's slot.

    There are two halves, so that a fast partner never overwrites what the slow one still reads.
    """
    half = slots[turn % 2]
    half[me].copy_(tensor)
    wake()
    wait()
    tensor.add_(half[1 - me])


class SharedMemory:
    """Sums between partners on one machine, through memory that both of them see.

    Each partner has slots in it, and a pipe on which the other wakes it.
    """

    def __init__(
        self, group: Any, shape: Sequence[int], add: Callable[..., None] = shared_sum
    ) -> None:
        """Meet the partner, who calls this as well, and map memory for float32 tensors."""
        self.me, self.turn, self.add = dist.get_rank() % 2, 0, add
        self.slots, pipes = shared_memory((2, 2, *shape), pipes=2, group=group)
        self.wake = partial(os.write, pipes[1 - self.me], b"!")
        self.wait = partial(os.read, pipes[self.me], 1)

    def __call__(self, tensors: list[torch.Tensor], group: Any) -> None:
        """Sum every tensor with the partner's, one after the other."""
        for tensor in tensors:
            self.add(tensor, self.slots, self.me, self.turn, self.wake, self.wait)
            self.turn += 1


WAYS: dict[str, Way] = {"blocking": blocking, "async_op": asynchronous, "fused": fused}


def pin(arm: Mapping[str, Any]) -> None:
    """Pin this rank to one of the CPUs of its arm; without ``"cpus"`` it runs anywhere.

    Pairs are dealt out, so that partners share a CPU; if they are ``"apart"``, ranks are. Of each
    core one thread comes first: two threads of a core are less than two CPUs.
    """
    if arm.get("cpus"):
        number = dist.get_rank() if arm.get("apart") else dist.get_rank() // 2
        by_turns = chain(*zip_longest(*cores()))
        cpus = [cpu for cpu in by_turns if cpu is not None]
        affinity.pin([cpus[number % arm["cpus"]]])


def cores(system: Path = Path("/sys/devices/system/cpu")) -> list[list[int]]:
    """Sort our CPUs by the core whose threads they are; if Linux does not tell, each is a core."""
    threads: dict[str, list[int]] = {}
    for cpu in affinity.cpus():
        core = f"{cpu}"
        with contextlib.suppress(OSError):
            core = (system / f"cpu{cpu}/topology/thread_siblings_list").read_text().strip()
        threads.setdefault(core, []).append(cpu)
    return list(threads.values())


# The script as it was posted


def target(process_group: Any, n_iters: int = 256) -> None:
    """Sum a tensor so many times; posted: 1024 times, and on the CPU."""
    for _ in range(n_iters):
        x = torch.randn(10, 10, device=device())
        dist.all_reduce(x, group=process_group)
    if x.is_cuda:
        torch.cuda.synchronize()


def as_posted(rank: int, world_size: int) -> float:
    """Make the groups and time `target` as the thread's `_launch` does; return seconds."""
    for i in range(0, world_size, 2):
        new_group = dist.new_group([i, i + 1])
        if rank == i or rank == i + 1:
            process_group = new_group
    if device().type == "cuda":
        for group in (process_group, None):
            dist.all_reduce(torch.zeros(1, device=device()), group=group)
        torch.cuda.synchronize()
    start = datetime.datetime.now()
    target(process_group)
    end = datetime.datetime.now()
    return (end - start).total_seconds() / 256


def never_preempt() -> None:
    """Put all threads of this process in the class SCHED_BATCH, which needs no privilege.

    A thread of that class, when it wakes up, waits until the one that runs goes to sleep or has had
    its turn. Source: sched(7).
    """
    for thread in Path("/proc/self/task").iterdir():
        with contextlib.suppress(ProcessLookupError):  # it has just ended
            os.sched_setscheduler(int(thread.name), os.SCHED_BATCH, os.sched_param(0))


def accounted(go: Callable[[int], None], calls: int, metered: bool = False) -> dict[str, Any]:
    """Time a block of so many calls, which ``go(calls)`` makes, and account for this rank's time.

    A short block comes first, to warm up; if `metered`, its bytes are counted. To read the accounts
    takes half a millisecond of CPU time, so they are read *around* the stopwatch. Then they hold
    that reading, too, and how ranks meet before and after the block: what a block without a call
    costs is taken away.

    Returns:
        ``samples``: the block's seconds per call. Per call, in seconds: ``on_cpu`` and ``waiting``
        (all threads), ``loop`` (on a CPU in gloo's loop threads); ``switches`` and, if metered,
        bytes ``sent`` per call.
    """
    few, result = min(calls, 20), {}
    if metered:
        with wire.meter() as meter:
            go(few)
        result["sent"] = sum(traffic.sent for traffic in meter.report.flows.values()) / few
    else:
        go(few)
    without, _ = _watched(partial(go, 0))
    totals, seconds = _watched(partial(go, calls))
    per_call = {name: (total - without[name]) / calls for name, total in totals.items()}
    return {"samples": [seconds / calls]} | result | per_call


def _watched(block: Callable[[], None]) -> tuple[dict[str, float], float]:
    """Return what the accounts say of a block and of the ranks' meeting, and its seconds alone."""
    with sched.watch() as usage:
        (seconds,) = timing.time_calls(block, warmup=0, iters=1)
    accounts = {
        "on_cpu": usage.on_cpu,
        "waiting": usage.waiting,
        "loop": _loop_seconds(usage),
        "switches": usage.voluntary + usage.involuntary,
    }
    return accounts, seconds


def _loop_seconds(usage: sched.Usage) -> float:
    """Return the seconds that gloo's loop threads were on a CPU.

    torch 2.8 does not name its threads. Then it is the busiest one beside the main thread.
    """
    named = [thread.on_cpu for thread in usage.threads if thread.name == "gloo_tcp_loop"]
    others = [thread.on_cpu for thread in usage.threads[1:]]  # none where no accounts are kept
    return sum(named) if named else max(others, default=0.0)


def calls(arm: Mapping[str, Any]) -> dict[str, Any]:
    """Time the calls of an arm's pairs, and keep accounts (see `accounted`).

    Of ``"pairs"`` only ``"calling"`` call; ``"across"``: on two hosts (see `pair_group`). Before
    a call come ``"small_sums"`` of 40,000 elements, for torch's threads, and seconds off the CPU:
    ``"elsewhere"``, as if an accelerator worked, and ``"for_each_group"`` that exists.
    """
    across, wide = arm.get("across", False), torch.ones(40_000)
    group, x = pair_group(across=across), torch.zeros(arm.get("numel", 100), device=device())
    calling = arm.get("calling", arm["pairs"])
    rank, pairs = dist.get_rank(), dist.get_world_size() // 2
    calls_too = (rank % pairs if across else rank // 2) < calling
    off = arm.get("elsewhere", 0.0) + arm.get("for_each_group", 0.0) * arm["pairs"]

    def go(count: int) -> None:
        for _ in range(count if calls_too else 0):
            for _ in range(arm.get("small_sums", 0)):
                wide.add_(1)
            if off:
                time.sleep(off)
            dist.all_reduce(x, group=group)
        synchronize()

    return accounted(go, arm.get("calls", 200), arm.get("metered", False))


def messages(arm: Mapping[str, Any]) -> dict[str, Any]:
    """Time plain messages between partners, without gloo: 400 bytes there, 400 back."""
    group, ports, text = pair_group(), [0, 0], b"x" * 400
    with socket.create_server(("127.0.0.1", 0)) as server:
        dist.all_gather_object(ports, server.getsockname()[1], group=group)
        if dist.get_rank() % 2:
            line = socket.create_connection(("127.0.0.1", ports[0]))
        else:
            line, _ = server.accept()
    line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def go(count: int) -> None:
        for _ in range(count // 2):
            if dist.get_rank() % 2 == 0:
                line.send(text)
            line.recv(400, socket.MSG_WAITALL)
            if dist.get_rank() % 2:
                line.send(text)

    with line:
        return accounted(go, arm["calls"])


def each_way(arm: Mapping[str, Any], count: int = 32) -> dict[str, Any]:
    """Time the `WAYS` in turn, each summing so many tensors.

    Returns:
        By the name of a way, seconds per tensor in each of `ROUNDS` rounds; by its name and
        ``switches``, this rank's context switches per tensor.
    """
    group, xs = pair_group(), [torch.zeros(SHAPE) for _ in range(count)]
    rounds: dict[str, list[float]] = {}
    for way in WAYS.values():
        way(xs, group)  # to warm up
    for _, (name, way) in product(range(ROUNDS), WAYS.items()):
        with sched.watch() as usage:
            samples = timing.time_calls(partial(way, xs, group), warmup=0, iters=BLOCKS)
        per_tensor = (usage.voluntary + usage.involuntary) / (BLOCKS * count)
        rounds.setdefault(name, []).append(min(samples) / count)
        rounds.setdefault(f"{name}, switches", []).append(per_tensor)
    return {"samples": rounds["blocking"]} | rounds
