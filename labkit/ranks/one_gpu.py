"""NCCL between ranks that share one GPU: whether it can be had here, and what it takes.

NCCL refused that up to 2.29. Since 2.30 a variable allows it, as an experiment (user guide,
`docs/userguide/source/env.rst` of NVIDIA/nccl, commit 5067397, NCCL_MULTI_RANK_GPU_ENABLE). The
ranks' kernels take turns on the GPU: what they show is the order of things. Their times are no
links' times. Where the GPU's multiprocessors do not
suffice, NCCL hangs: give such launches a short timeout.
"""

import os
from importlib import metadata

from labkit.ranks.machine import gpu_count

SINCE = (2, 30)
"""The first NCCL that can do it. PyTorch 2.15 brings 2.30.7."""
_VARIABLES = {
    "NCCL_MULTI_RANK_GPU_ENABLE": "1",
    "NCCL_NVLS_ENABLE": "0",  # it cannot be used with several ranks on a GPU
    "NCCL_MAX_CTAS": "2",  # blocks of the GPU for each rank: the guide says to limit them
}


def why_not() -> str:
    """Say why ranks cannot share a GPU here, as a sentence; empty where they can."""
    if gpu_count() == 0:
        return "There is no GPU here."
    version = nccl_version()
    if version < SINCE:
        found = f"brings NCCL {_dotted(version)}" if version else "has no NCCL"
        return (
            f"Ranks share a GPU since NCCL {_dotted(SINCE)}; torch {metadata.version('torch')} "
            f"{found}. Install torch 2.15 or newer."
        )
    return ""


def variables() -> dict[str, str]:
    """Return the environment variables that the ranks need; they see the first GPU only."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES") or "0"
    return _VARIABLES | {"CUDA_VISIBLE_DEVICES": visible.partition(",")[0]}


def nccl_version() -> tuple[int, ...]:
    """Return the version of torch's NCCL; empty where torch has none."""
    import torch

    try:
        return tuple(torch.cuda.nccl.version()[:3])
    except (AttributeError, RuntimeError):  # a torch for CPUs
        return ()


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))
