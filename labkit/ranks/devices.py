"""Which device a rank computes on: its GPU where NCCL is there to carry what lies on it."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


BOTH = "cpu:gloo,cuda:nccl"  # the backend where nobody asks for one and every rank can have a GPU
_noted = False


def usual(gpus: int, ranks: int) -> str:
    """Return the backend of a host's ranks where nobody asks for one, once they see so many GPUs.

    That GPUs stay unused is said once, by rank 0 or by who launches.
    """
    global _noted
    if gpus >= ranks:
        return BOTH
    if gpus and not _noted and os.environ.get("RANK", "0") == "0":
        _noted = True
        print(
            f"labkit: {ranks} ranks on one host, GPUs that a rank sees: {gpus}. NCCL takes one for "
            'each, so it is gloo, on the CPU. backend="gloo" asks for that without this line.',
            file=sys.stderr,
        )
    return "gloo"


def device() -> torch.device:
    """Return this rank's GPU where the default group has NCCL for it, else the CPU.

        def program():
            x = torch.ones(4, device=device())    # the same source for gloo and for NCCL
            with device():
                y = torch.ones(4)                 # as a context: what is made here lies there
            dist.all_reduce(x)

    Ranks share a machine's GPUs in turn only where NCCL was told that they may (2.30:
    ``NCCL_MULTI_RANK_GPU_ENABLE=1``); else `launch` takes NCCL only where each rank has a GPU.
    Outside a rank there is no group that could tell: a line says so, and it is the CPU.
    """
    import torch
    import torch.distributed as dist

    if not dist.is_initialized():
        print(
            "labkit: device() is the CPU here: it asks the default process group, and there is "
            "none. Call it in a program that launch runs.",
            file=sys.stderr,
        )
        return torch.device("cpu")
    if "nccl" not in dist.get_backend_config():
        return torch.device("cpu")
    local_rank = int(os.environ.get("LOCAL_RANK") or dist.get_rank())
    return torch.device("cuda", local_rank % torch.cuda.device_count())


def barrier() -> None:
    """Let all ranks meet, as `dist.barrier`; NCCL is told on which GPU, or it warns of guessing."""
    import torch.distributed as dist

    here = device()
    dist.barrier(device_ids=None if here.index is None else [here.index])


def claim(backend: str, local_rank: int) -> str:
    """Make this rank's GPU the current one if NCCL is asked for; return the backend to use.

    A GPU that is there but cannot be used, as under a driver that is too old, is no reason to stop
    where nobody asked for NCCL alone: rank 0 says why, and all ranks use gloo.
    """
    if "nccl" not in backend:
        return backend
    import torch

    try:
        torch.cuda.init()
        torch.cuda.set_device(local_rank % (torch.cuda.device_count() or 1))
    except (RuntimeError, AssertionError) as error:  # AssertionError: a build without CUDA
        if backend != BOTH:
            raise
        if os.environ.get("RANK") == "0":
            reason = str(error).partition("\n")[0]
            print(f"labkit: the GPUs cannot be used, so it is the CPU: {reason}", file=sys.stderr)
        return "gloo"
    return backend
