"""Copies between and within GPUs. Needs CUDA: `available` says what is there.

With two GPUs or more: the matrix of all ordered pairs, by peer-to-peer copy and staged through
pinned host memory. With one: device to device, and both directions between host and device from
pinned and from pageable memory.
"""

import statistics
import time
from collections.abc import Callable

import torch

from labkit.measure.records import Provenance, Record, Tier

NBYTES = 400_000_000


def available() -> int:
    """Return how many GPUs can be used here."""
    return torch.cuda.device_count() if torch.cuda.is_available() else 0


def pair_matrix(*, nbytes: int = NBYTES, iters: int = 5, staged: bool = False) -> list[list[float]]:
    """Return the bandwidth of a copy for each ordered pair of GPUs, in bytes per second.

    Args:
        nbytes: Of a copy.
        iters: Repetitions, of which the median counts.
        staged: Through pinned host memory, in two steps, as where peer access is off; else the
            driver's own choice, which is peer-to-peer where the pair allows it.
    """
    gpus = range(available())
    return [
        [nbytes / _pair_time(src, dst, nbytes, iters, staged=staged) for dst in gpus]
        for src in gpus
    ]


def peer_access() -> list[list[bool]]:
    """Return which GPU can reach which other's memory directly."""
    gpus = range(available())
    return [
        [src != dst and torch.cuda.can_device_access_peer(src, dst) for dst in gpus] for src in gpus
    ]


def _pair_time(src: int, dst: int, nbytes: int, iters: int, *, staged: bool) -> float:
    source = torch.ones(nbytes // 4, device=f"cuda:{src}")
    into = torch.empty(nbytes // 4, device=f"cuda:{dst}")
    host = torch.empty(nbytes // 4, pin_memory=True) if staged else None

    def copy() -> None:
        if host is None:
            into.copy_(source, non_blocking=True)
        else:
            host.copy_(source, non_blocking=True)
            torch.cuda.synchronize(src)
            into.copy_(host, non_blocking=True)

    seconds = _median_time(copy, devices=(src, dst), iters=iters)
    if not torch.equal(into.cpu()[:1000], source.cpu()[:1000]):
        raise AssertionError(f"GPU {src} to GPU {dst}: the copy is not equal to its source")
    return seconds


def _median_time(copy: Callable[[], None], *, devices: tuple[int, ...], iters: int) -> float:
    """Time a copy by the host's clock between synchronisations of every GPU that takes part.

    Events of one GPU do not see the other's work; at these sizes the host's clock is exact enough.
    """

    def settle() -> None:
        for device in devices:
            torch.cuda.synchronize(device)

    samples = []
    for _ in range(iters + 1):
        settle()
        begin = time.perf_counter()
        copy()
        settle()
        samples.append(time.perf_counter() - begin)
    return statistics.median(samples[1:])


def single_gpu(*, nbytes: int = NBYTES, iters: int = 10) -> list[Record]:
    """Time the copies that one GPU can make, with CUDA events on its current stream."""
    on_gpu, other = (torch.ones(nbytes // 4, device="cuda") for _ in range(2))
    pinned = torch.ones(nbytes // 4, pin_memory=True)
    pageable = torch.ones(nbytes // 4)
    copies = {
        "device to device": lambda: other.copy_(on_gpu, non_blocking=True),
        "pinned host to device": lambda: on_gpu.copy_(pinned, non_blocking=True),
        "device to pinned host": lambda: pinned.copy_(on_gpu, non_blocking=True),
        "pageable host to device": lambda: on_gpu.copy_(pageable),
        "device to pageable host": lambda: pageable.copy_(on_gpu),
    }
    return [
        Record(
            "gpu-copies",
            case,
            {"gpu": torch.cuda.get_device_name()},
            [_event_times(copy, iters)],
            Tier.MEASURED,
            Provenance.here(backend="cuda"),
            nbytes=nbytes,
        )
        for case, copy in copies.items()
    ]


def _event_times(copy: Callable[[], None], iters: int) -> list[float]:
    copy()
    samples = []
    for _ in range(iters):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        copy()
        end.record()
        end.synchronize()
        samples.append(begin.elapsed_time(end) / 1e3)
    return samples
