"""The same bytes by different ways on this machine: between its GPUs, and between two processes.

With two GPUs or more: the matrix of all ordered pairs, by peer-to-peer copy, staged through pinned
host memory, or over another GPU. (With one: `course.gpus.directions`.) Without: memory that
two processes share, a TCP connection over the loopback, a pipe of pickled objects.
"""

import functools
import os
import pickle
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist

from course import runs
from labkit.measure import timing
from labkit.measure.records import Provenance, Record, Tier
from labkit.ranks.launcher import launch


def available() -> int:
    """Return how many GPUs can be used here."""
    return torch.cuda.device_count() if torch.cuda.is_available() else 0


def pair_matrix(*, via: str | None = None) -> list[list[float]]:
    """Return the `copy_rate` of each ordered pair of GPUs."""
    gpus = range(available())
    return [[copy_rate(src, dst, via=via) for dst in gpus] for src in gpus]


def copy_rate(src: int, dst: int, *, via: int | str | None = None) -> float:
    """Return the bytes per second of a copy of 400 MB from one GPU to another; the median.

    `via` is a relay: another GPU, or `"host"` for pinned memory, as where peer access is off. It
    hands 8 MB on while the next are on their way to it. None: as the driver chooses, which is
    peer-to-peer where the pair allows it.
    """
    nbytes = 400_000_000
    source = torch.arange(nbytes // 4, dtype=torch.float32, device=f"cuda:{src}")
    into = torch.zeros(nbytes // 4, device=f"cuda:{dst}")
    if via is None:
        hops = [(source, into, torch.cuda.current_stream(src))]
    else:
        where = {"pin_memory": True} if via == "host" else {"device": f"cuda:{via}"}
        between = torch.empty(nbytes // 4, **where)
        second = torch.cuda.Stream(dst if via == "host" else via)  # a copy runs where it reads from
        hops = [(source, between, torch.cuda.Stream(src)), (between, into, second)]

    step = (nbytes if via is None else 8_000_000) // 4

    def copy() -> None:
        for begin in range(0, nbytes // 4, step):
            arrived, piece = None, slice(begin, begin + step)
            for here, there, stream in hops:
                with torch.cuda.stream(stream):
                    if arrived is not None:
                        stream.wait_event(arrived)
                    there[piece].copy_(here[piece], non_blocking=True)
                    arrived = stream.record_event()
        for *_, stream in hops:
            stream.synchronize()
        torch.cuda.synchronize(dst)

    seconds = timing.summarize(timing.time_calls(copy, warmup=1, iters=5)).median
    if not torch.equal(into.cpu(), source.cpu()):
        raise AssertionError(f"GPU {src} to GPU {dst}: the copy is not equal to its source")
    return nbytes / seconds


def local_paths(*, nbytes: int = 32_000_000, iters: int = 5) -> list[Record]:
    """Time a copy from rank 0's memory into rank 1's, by each of three ways."""
    ways = {
        "shared memory": _shared_memory,
        "loopback TCP (gloo)": _gloo,
        "pickle through a pipe": _pickle,
    }
    found = []
    for case, way in ways.items():
        found += runs.watched(functools.partial(_local_record, case, way, nbytes, iters))
    return found


def _local_record(case: str, way: Callable, nbytes: int, iters: int) -> list[Record]:
    with tempfile.TemporaryDirectory() as folder:
        samples = [launch(_timed, way, folder, nbytes, iters, world_size=2)[1]]
    origin = {"tier": Tier.MEASURED, "provenance": Provenance.here()}
    return [Record("local-paths", case, {}, samples, nbytes=nbytes, **origin)]


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
    shm = Path("/dev/shm")
    name = [str(shm / f"labkit-{os.getpid()}" if shm.is_dir() else folder / "memory")]
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
