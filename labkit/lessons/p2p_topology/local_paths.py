"""Three ways for the same bytes between two processes of one machine, on any laptop.

The CPU's version of NVLink, PCIe and a detour through the host: memory that both processes see, a
TCP connection over the loopback, and a pipe that carries pickled objects.
"""

import os
import pickle
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist

from labkit.launch.launcher import launch
from labkit.measure.records import Provenance, Record, Tier

NBYTES = 32_000_000


def run(*, nbytes: int = NBYTES, iters: int = 5) -> list[Record]:
    """Time a copy from rank 0's memory into rank 1's, by each way."""
    found = []
    for case, program in {
        "shared memory": _shared_memory,
        "loopback TCP (gloo)": _gloo,
        "pickle through a pipe": _pickle,
    }.items():
        with tempfile.TemporaryDirectory() as folder:
            results = launch(_timed, program, folder, nbytes, iters, world_size=2)
        found.append(
            Record(
                "local-paths",
                case,
                {},
                [results[1]],
                Tier.MEASURED,
                Provenance.here(),
                nbytes=nbytes,
            )
        )
    return found


def _timed(way: Callable, folder: str, nbytes: int, iters: int) -> list[float]:
    """Let rank 1 time the copies, from the moment both are ready; check what arrives."""
    source = torch.arange(nbytes // 4, dtype=torch.float32)
    into = torch.zeros_like(source)
    copy = way(Path(folder), source, into)
    samples = []
    for _ in range(iters + 1):
        into.zero_()
        dist.barrier()
        begin = time.perf_counter()
        copy()
        samples.append(time.perf_counter() - begin)
        if dist.get_rank() == 1 and not torch.equal(into, source):
            raise AssertionError("the copy is not equal to its source")
    return samples[1:]


def _shared_memory(folder: Path, source: torch.Tensor, into: torch.Tensor) -> Callable[[], None]:
    """Copy into memory that both ranks map, tell the other, copy out: two copies, no kernel."""
    name = [str(folder / "memory")]
    if Path("/dev/shm").is_dir():
        name = [f"/dev/shm/labkit-{os.getpid()}"]
    dist.broadcast_object_list(name, src=0)
    memory = torch.from_file(name[0], shared=True, size=source.numel(), dtype=source.dtype)
    dist.barrier()
    if dist.get_rank() == 0:
        Path(name[0]).unlink()  # the mapping stays; nothing is left behind
    ready = torch.zeros(1)

    def copy() -> None:
        if dist.get_rank() == 0:
            memory.copy_(source)
            dist.send(ready, 1)
        else:
            dist.recv(ready, 0)
            into.copy_(memory)

    return copy


def _gloo(folder: Path, source: torch.Tensor, into: torch.Tensor) -> Callable[[], None]:
    """Send and receive: the kernel copies into the socket and out of it."""
    if dist.get_rank() == 0:
        return lambda: dist.send(source, 1)
    return lambda: dist.recv(into, 0)


def _pickle(folder: Path, source: torch.Tensor, into: torch.Tensor) -> Callable[[], None]:
    """Turn the tensor into bytes, push them through a pipe, make a tensor again."""
    pipe = folder / "pipe"
    if dist.get_rank() == 0:
        os.mkfifo(pipe)
    dist.barrier()

    def copy() -> None:
        if dist.get_rank() == 0:
            with pipe.open("wb") as file:
                file.write(pickle.dumps(source.numpy()))
        else:
            with pipe.open("rb") as file:
                into.copy_(torch.from_numpy(pickle.loads(file.read())))

    return copy
