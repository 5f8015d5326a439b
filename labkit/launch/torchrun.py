"""The same `launch` on ranks that torchrun has started already."""

from __future__ import annotations

import os
import pickle
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import cloudpickle

from labkit.launch import roll_call
from labkit.launch.errors import LaunchError

_count = 0
_GRACE = timedelta(seconds=10)
"""How long a rank that failed waits for the others, which may be dead."""
_PATIENCE = timedelta(hours=2)
"""How long a rank that is done waits for the others, which may be busy."""


def is_here() -> bool:
    """Say whether this process is a rank that torchrun (or a launcher like it) started."""
    needed = {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}
    return needed <= os.environ.keys() and "LABKIT_RANK" not in os.environ


def default_backend() -> str:
    """Return what carries tensors: gloo, and where this rank has a GPU, NCCL beside it."""
    import torch

    local_rank = int(os.environ.get("LOCAL_RANK", os.environ["RANK"]))
    return "cpu:gloo,cuda:nccl" if torch.cuda.device_count() > local_rank else "gloo"


def nodes() -> tuple[roll_call.Node, ...]:
    """Return the nodes that the ranks run on; none before the first `run`, or without torchrun."""
    return roll_call.nodes(_present)


def run(
    program: Callable[..., Any],
    args: tuple,
    *,
    world_size: int | None,
    backend: str | None,
    fabric: object,
) -> list[Any]:
    """Run the program on the first ``world_size`` ranks; every rank gets all results.

    Each call makes a fresh default group. The processes stay the same, unlike in a plain `launch`.

    Raises:
        ValueError: If more ranks are asked for than torchrun started, or a fabric is.
        LaunchError: On the ranks that did not fail, or only because another one did: names it.
    """
    global _count
    import torch.distributed as dist

    rank, there = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    world_size = there if world_size is None else world_size
    if fabric is not None:
        raise ValueError("a fabric needs ranks of its own; it cannot hold those of torchrun.")
    if not 1 <= world_size <= there:
        raise ValueError(f"world_size={world_size}, but {there} ranks were started.")
    _count += 1
    store = dist.PrefixStore(f"labkit-{_count}", _store(rank, there))
    failure = None
    if rank < world_size:
        blob, failure = _run_here(program, args, store, rank, world_size, backend)
        store.set(f"result-{rank}", blob)
    missing = _wait_for_results(store, world_size, _GRACE if failure else _PATIENCE)
    there_are = [other for other in range(world_size) if other not in missing]
    results = {other: pickle.loads(store.get(f"result-{other}")) for other in there_are}
    store.add("read", 1)
    if rank == 0:  # the store may live in this process: outlast the others' reading
        readers = there - len(missing)
        deadline = time.monotonic() + _GRACE.total_seconds()
        while store.add("read", 0) < readers and time.monotonic() < deadline:
            time.sleep(0.001)
    failed = [(order, other) for other, (order, _) in results.items() if order]
    if failed:
        _, first = min(failed)
        _, what = results[first]
        if failure is None or what != results[rank][1]:
            raise LaunchError(f"rank {first} of {world_size} raised {what}") from failure
        raise failure
    if missing:
        raise LaunchError(f"ranks {missing} of {world_size} left no result: did their node die?")
    return [value for _, value in results.values()]


def _wait_for_results(store: Any, world_size: int, patience: timedelta) -> list[int]:
    """Wait for every rank's result; return the ranks that left none in that time."""
    keys = [f"result-{rank}" for rank in range(world_size)]
    try:
        store.wait(keys, patience)
    except RuntimeError:  # torch's DistStoreError
        return [rank for rank, key in enumerate(keys) if not store.check([key])]
    return []


_shared_store = None
_present: list[roll_call.Present] = []


def _store(rank: int, world_size: int) -> Any:
    """Connect to the store that all ranks share; the first time, call the roll."""
    global _shared_store, _present
    if _shared_store is None:
        import torch.distributed as dist
        from torch.distributed.rendezvous import rendezvous

        patience = roll_call.patience()
        try:
            store, _, _ = next(rendezvous("env://", rank, world_size, timeout=patience))
        except dist.DistError as error:
            raise roll_call.too_few(f"not all came ({error})", world_size) from error
        answers = dist.PrefixStore("labkit-roll-call", store)
        me = roll_call.Present.here(rank, default_backend())
        _present = roll_call.call(answers, me, world_size=world_size)
        _shared_store = store
    return _shared_store


def _run_here(
    program: Callable[..., Any],
    args: tuple,
    store: Any,
    rank: int,
    world_size: int,
    backend: str | None,
) -> tuple[bytes, BaseException | None]:
    """Return the rank's result, pickled: (0, value), or (its place among the failures, text)."""
    import torch
    import torch.distributed as dist

    backend = backend or default_backend()
    if "nccl" in backend:
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", rank)))
    saved = os.environ["WORLD_SIZE"]
    os.environ["WORLD_SIZE"] = str(world_size)
    try:
        group_store = dist.PrefixStore("group", store)
        dist.init_process_group(backend, store=group_store, rank=rank, world_size=world_size)
        return cloudpickle.dumps((0, program(*args))), None
    except Exception as error:
        order = store.add("failures", 1)  # before the others lose their connection and fail too
        return cloudpickle.dumps((order, f"{type(error).__name__}: {error}")), error
    finally:
        os.environ["WORLD_SIZE"] = saved
        if dist.is_initialized():
            dist.destroy_process_group()
