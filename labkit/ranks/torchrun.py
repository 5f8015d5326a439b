"""The same `launch` on ranks that torchrun has started already, on one node or several.

Before the first program the ranks call the roll: all must be there.
"""

from __future__ import annotations

import contextlib
import faulthandler
import itertools
import json
import os
import pickle
import socket
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import cloudpickle

from labkit.ranks.errors import LaunchError
from labkit.ranks.machine import Machine
from labkit.ranks.rank import compare_calls

if TYPE_CHECKING:
    from torch.distributed import Store

JOIN_TIMEOUT = "LABKIT_JOIN_TIMEOUT"
"""Environment variable: seconds that ranks wait for each other at the start."""
_MARKS = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
_GRACE = 10.0  # seconds that a rank which is done waits for the others, which may be dead
_BUSY = 7200.0  # seconds that a rank waits for the others where `timeout` sets no limit
_PATIENCE = 5.0  # seconds after which a rank says for whom it waits
_numbers = itertools.count(1)
_store: Store | None = None
_present: list[tuple[str, dict[str, Any]]] = []
"""By rank: its node, and what that machine is."""


def is_here() -> bool:
    """Say whether this process is a rank that torchrun (or a launcher like it) started.

    A notebook is none, though its kernel may have inherited torchrun's variables.
    """
    ipython = sys.modules.get("IPython")
    notebook = ipython is not None and hasattr(ipython.get_ipython(), "kernel")
    return os.environ.keys() >= set(_MARKS) and "LABKIT_RANK" not in os.environ and not notebook


def default_backend() -> str:
    """Return what carries tensors: gloo, and where this rank has a GPU, NCCL beside it."""
    import torch

    local_rank = int(os.environ.get("LOCAL_RANK") or os.environ.get("RANK", "0"))
    return "cpu:gloo,cuda:nccl" if torch.cuda.device_count() > local_rank else "gloo"


def run_on_ranks(
    program: Callable[[], Any],
    *,
    world_size: int | None,
    backend: str | None,
    fabric: object,
    timeout: float,
    init: bool,
    checks: bool,
    threads: int,
) -> list[Any]:
    """Run the program on the first ``world_size`` ranks; every rank gets all results.

    Each call makes a fresh default group. The processes stay the same, unlike in a plain `launch`:
    a rank that is late cannot be taken out of what it hangs in. It writes its stack to its standard
    error and ends with status 1, which makes torchrun end the job.

    Raises:
        ValueError: If more ranks are asked for than torchrun started, or a fabric is.
        RuntimeError: If the job has a default group of its own, which stays as it is.
        LaunchError: On the ranks that did not fail, or only because another one did: names it.
    """
    import torch
    import torch.distributed as dist

    rank, there = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    world_size = there if world_size is None else world_size
    if dist.is_initialized():
        raise RuntimeError(
            "This job has made its default group already, and launch would need one of its own. "
            "Call your function directly: time_calls, wire.meter, sched, CallLog and Tracer work "
            "inside any job. Or call launch before init_process_group."
        )
    if fabric is not None:
        raise ValueError("a fabric needs ranks of its own; it cannot hold those of torchrun.")
    if world_size > there:
        raise ValueError(f"world_size={world_size}, but {there} ranks were started.")
    store = dist.PrefixStore(f"labkit-{next(_numbers)}", _shared_store(rank, there))
    failure, patience = None, min(timeout, _BUSY) + _GRACE
    if rank < world_size:
        saved = torch.get_num_threads()
        torch.set_num_threads(threads)
        os.environ |= {"WORLD_SIZE": str(world_size), "LABKIT_RANK": str(rank)}
        compare_calls(checks)
        backend = (backend or default_backend()) if init else ""
        try:
            failure = _run(program, store, rank, world_size, backend=backend, timeout=timeout)
        finally:
            os.environ["WORLD_SIZE"] = str(there)
            del os.environ["LABKIT_RANK"]
            torch.set_num_threads(saved)
            dist.set_debug_level_from_env()
    if failure is not None:
        patience = _GRACE
    with contextlib.suppress(RuntimeError):  # torch's DistStoreError: they are named below
        store.wait(["over"], timedelta(seconds=patience))
    keys = {other: f"result-{other}" for other in range(world_size)}
    results = {r: pickle.loads(store.get(key)) for r, key in keys.items() if store.check([key])}
    if dist.is_initialized():
        dist.destroy_process_group()
    store.add("read", 1)
    if rank == 0:  # the store may live in this process: outlast the others' reading
        _poll(lambda: store.add("read", 0) >= there - world_size + len(results))
    failed = [(order, other) for other, (order, _) in results.items() if order]
    if failed:
        _, first = min(failed)
        _, text = results[first]
        if failure is None or text != _in_words(failure):
            raise LaunchError(f"rank {first} of {world_size} raised {text}") from failure
        raise failure
    if missing := sorted(set(keys) - set(results)):
        raise LaunchError(
            f"ranks {missing} of {world_size} left no result: do they hang, or did their node die?"
        )
    return [value for _, value in results.values()]


def _run(
    program: Callable[[], Any],
    store: Store,
    rank: int,
    world_size: int,
    *,
    backend: str,
    timeout: float,
) -> Exception | None:
    """Run the program; leave (0, its value) or (place among the failures, text) to all."""
    import torch
    import torch.distributed as dist

    failure = None
    try:
        if "nccl" in backend:
            torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", rank)))
        if backend:
            group = dist.PrefixStore("group", store)
            dist.init_process_group(backend, store=group, rank=rank, world_size=world_size)
        store.add("joined", 1)
        faulthandler.dump_traceback_later(min(timeout, threading.TIMEOUT_MAX), exit=True)
        blob = cloudpickle.dumps((0, program()))
    except Exception as error:
        order = store.add("failures", 1)  # before the others lose their connection and fail too
        if dist.is_initialized():
            _poll(lambda: store.add("joined", 0) == world_size)  # none still connects
            dist.destroy_process_group()  # so that those who wait for this rank fail
        blob = cloudpickle.dumps((order, _in_words(error)))
        failure = error
    finally:
        faulthandler.cancel_dump_traceback_later()
    store.set(f"result-{rank}", blob)
    if store.add("done", 1) == world_size:
        store.set("over", "done")
    return failure


def _in_words(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def _poll(done: Callable[[], bool]) -> None:
    """Wait until it is done, at most `_GRACE`. A store's own wait logs C++."""
    deadline = time.monotonic() + _GRACE
    while not done() and time.monotonic() < deadline:
        time.sleep(0.005)


def _shared_store(rank: int, world_size: int) -> Store:
    """Connect to the store that all ranks share; the first time, call the roll.

    Raises:
        LaunchError: Ranks did not come in time.
    """
    global _store, _present
    if _store is not None:
        return _store
    import torch.distributed as dist
    from torch.distributed.rendezvous import rendezvous

    wait = float(os.environ.get(JOIN_TIMEOUT, "120"))
    remedy = f"Did torchrun not start this process? Unset {', '.join(_MARKS)}."
    text = f"labkit: launch waits {wait:g} s for the {world_size} ranks of a job. {remedy}"
    note = threading.Timer(_PATIENCE, print, [text], {"file": sys.stderr})
    note.start()
    node = os.environ.get("GROUP_RANK") or os.environ.get("SLURM_NODEID") or socket.gethostname()
    ranks = [str(other) for other in range(world_size)]
    try:
        store, *_ = next(rendezvous("env://", rank, world_size, timeout=timedelta(seconds=wait)))
        answers = dist.PrefixStore("labkit-roll-call", store)
        answers.set(str(rank), json.dumps([node, asdict(Machine.here())]))
        answers.wait(ranks, timedelta(seconds=wait))
        _present = [json.loads(answers.get(other)) for other in ranks]
    except RuntimeError as error:  # torch's DistStoreError and DistNetworkError
        raise LaunchError(
            f"{world_size} ranks were announced, but not all came in {wait:g} s "
            f"({str(error).splitlines()[0]}). Is every node started, with the same address and "
            f"port, and can it reach them? {JOIN_TIMEOUT}=600 waits longer. {remedy}"
        ) from None
    finally:
        note.cancel()
    _store = store
    return store


@dataclass(frozen=True, slots=True)
class Node:
    """A machine of several, and which ranks ran there. It has no name: records are passed on."""

    ranks: tuple[int, ...]
    machine: Machine

    @classmethod
    def from_dict(cls, fields: dict[str, Any]) -> Node:
        """Rebuild it from `dataclasses.asdict`."""
        return cls(tuple(fields["ranks"]), Machine.from_dict(fields["machine"]))


def nodes() -> tuple[Node, ...]:
    """Return the nodes by their first rank; none before the first launch, or without torchrun.

    A node is what torchrun or Slurm calls so; without them, a host.
    """
    by_node: dict[str, list[int]] = {}
    for rank, (node, _) in enumerate(_present):
        by_node.setdefault(node, []).append(rank)
    return tuple(
        Node(tuple(ranks), Machine.from_dict(_present[ranks[0]][1])) for ranks in by_node.values()
    )
