"""The same `launch` on ranks that torchrun has started already."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from typing import Any

import cloudpickle

from labkit.run.failures import LaunchError

_count = 0


def is_here() -> bool:
    """Say whether this process is a rank that torchrun (or a launcher like it) started."""
    needed = {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}
    return needed <= os.environ.keys() and "LABKIT_RANK" not in os.environ


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
        LaunchError: On the ranks that did not fail themselves, naming the one that did.
    """
    global _count
    import torch.distributed as dist

    rank, there = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    world_size = there if world_size is None else world_size
    if fabric is not None:
        raise ValueError("a fabric needs ranks of its own; it cannot hold those of torchrun.")
    if not 1 <= world_size <= there:
        raise ValueError(f"world_size={world_size}, but torchrun started {there} ranks.")
    _count += 1
    store = dist.PrefixStore(f"labkit-{_count}", _store(rank, there))
    failure = None
    if rank < world_size:
        blob, failure = _run_here(program, args, store, rank, world_size, backend)
        store.set(f"result-{rank}", blob)
    results = [pickle.loads(store.get(f"result-{other}")) for other in range(world_size)]
    store.add("read", 1)
    if rank == 0:  # the store may live in this process: outlast the others' reading
        while store.add("read", 0) < there:
            pass
    if failure is not None:
        raise failure
    for other, (worked, value) in enumerate(results):
        if not worked:
            raise LaunchError(f"rank {other} of {world_size} raised {value}")
    return [value for _, value in results]


_shared_store = None


def _store(rank: int, world_size: int) -> Any:
    global _shared_store
    if _shared_store is None:
        from torch.distributed.rendezvous import rendezvous

        _shared_store, _, _ = next(rendezvous("env://", rank, world_size))
    return _shared_store


def _run_here(
    program: Callable[..., Any],
    args: tuple,
    store: Any,
    rank: int,
    world_size: int,
    backend: str | None,
) -> tuple[bytes, BaseException | None]:
    import torch
    import torch.distributed as dist

    local_rank = int(os.environ.get("LOCAL_RANK", rank))
    if backend is None:
        backend = "cpu:gloo,cuda:nccl" if torch.cuda.device_count() > local_rank else "gloo"
    if "nccl" in backend:
        torch.cuda.set_device(local_rank)
    saved = os.environ["WORLD_SIZE"]
    os.environ["WORLD_SIZE"] = str(world_size)
    try:
        group_store = dist.PrefixStore("group", store)
        dist.init_process_group(backend, store=group_store, rank=rank, world_size=world_size)
        return cloudpickle.dumps((True, program(*args))), None
    except Exception as error:
        return cloudpickle.dumps((False, f"{type(error).__name__}: {error}")), error
    finally:
        os.environ["WORLD_SIZE"] = saved
        if dist.is_initialized():
            dist.destroy_process_group()
