"""Where a rank's tensors live, and what carries them."""

from __future__ import annotations

import os

import torch
import torch.distributed as dist

from labkit.launch.launcher import default_backend


def mine() -> torch.device:
    """Return this rank's GPU if the default group has NCCL, else the CPU.

    As a context it makes new tensors there: ``with devices.mine(): x = torch.ones(4)``.
    """
    if "nccl" in dist.get_backend_config():
        return torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    return torch.device("cpu")


def carrier(world_size: int) -> str:
    """Return ``"nccl"`` or ``"gloo"``: what carries the tensors of `mine` in a launch."""
    return "nccl" if "nccl" in default_backend(world_size) else "gloo"
