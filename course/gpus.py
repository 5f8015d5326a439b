"""What one GPU can show by itself: copies, kernels, both at once, and memory lent to a process.

Every function takes the device and `iters`, the repetitions. On ``"cpu"`` the same code runs by the
wall clock, without streams or pinned memory: that is how it is tested, and says nothing about any
GPU.
"""

import itertools
import re
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from labkit.measure import timing
from labkit.measure.records import Provenance, Record, Tier
from labkit.ranks import one_gpu
from labkit.ranks.launcher import launch

NAME = "gpu"
"""The experiment that all records here belong to."""
PIECES = 320
"""Tensors in a ResNet50's state (lesson 03): as many kernels, one by one."""
_DRIVER = (Path("/sys/module/nvidia/version"), Path("/proc/driver/nvidia/version"))


def _versions(device: str = "cuda") -> dict[str, str]:
    """Return what a GPU's figures depend on: its name, and the driver's and libraries' versions."""
    found = {"device": device}
    if device == "cuda":
        found["device"] = torch.cuda.get_device_name()
        texts = (path.read_text() for path in _DRIVER if path.exists())
        driver = re.search(r"\d+\.\d+(\.\d+)?", next(texts, ""))
        found["driver"] = driver[0] if driver else "not known"
    nccl = ".".join(map(str, one_gpu.nccl_version()))
    return found | {"torch": torch.__version__, "cuda": torch.version.cuda or "", "nccl": nccl}


def copies(
    shape: Sequence[int] = (128, 3, 224, 224), *, n: int = 4096, iters: int = 10,
    device: str = "cuda",
) -> list[Record]:  # fmt: skip
    """Copy a batch to the GPU in the eight ways: pinned or not, blocking or not, on which stream.

    The batch is float32; matrices of n rows and columns are multiplied before and after.

    Returns:
        Eight records of the whole step. `values`: ``held``, the seconds that Python is held in
        ``.to`` (median).
    """
    found = []
    for ways in itertools.product((False, True), repeat=3):
        switches = dict(zip(("pinned", "non_blocking", "own_stream"), ways, strict=True))
        made = copy_beside_compute(shape, n, iters, device, **switches)
        held, steps = (list(column) for column in zip(*made, strict=True))
        words = ("pinned" if ways[0] else "pageable", "non_blocking" if ways[1] else "blocking",
                 "own stream" if ways[2] else "default stream")  # fmt: skip
        values = {"held": statistics.median(held)}
        found.append(_record(", ".join(words), steps, device, values, **switches))
    return found


def copy_beside_compute(
    shape: Sequence[int], n: int, iters: int, device: str,
    *, pinned: bool, non_blocking: bool, own_stream: bool,
) -> list[tuple[float, float]]:  # fmt: skip
    """Return the seconds that `.to` holds Python, and of the step: products, a copy, products."""
    batch, a = torch.ones(shape), torch.rand(n, n, device=device)
    batch = batch.pin_memory() if pinned and device == "cuda" else batch
    stream = torch.cuda.Stream() if own_stream and device == "cuda" else None
    found = []
    for _ in range(iters + 2):  # two to warm up
        settle(device)
        start = time.perf_counter()
        for _ in range(10):
            a @ a
        before = time.perf_counter()
        with torch.cuda.stream(stream):  # of None: the stream that is current
            there = batch.to(device, non_blocking=non_blocking)
        held = time.perf_counter() - before
        if stream is not None:
            torch.cuda.current_stream().wait_stream(stream)  # the GPU waits, not Python
            there.record_stream(torch.cuda.current_stream())
        for _ in range(10):
            a @ a
        settle(device)
        found.append((held, time.perf_counter() - start))
    return found[2:]


def directions(nbytes: int = 400_000_000, *, iters: int = 10, device: str = "cuda") -> list[Record]:
    """Copy within the GPU's memory, and to and from the host's, pinned and pageable."""
    there, other = (torch.ones(nbytes // 4, device=device) for _ in range(2))
    pageable = torch.ones(nbytes // 4)
    pinned = pageable.pin_memory() if device == "cuda" else pageable.clone()
    ways = {
        "device to device": lambda: other.copy_(there, non_blocking=True),
        "pinned host to device": lambda: there.copy_(pinned, non_blocking=True),
        "device to pinned host": lambda: pinned.copy_(there, non_blocking=True),
        "pageable host to device": lambda: there.copy_(pageable),
        "device to pageable host": lambda: pageable.copy_(there),
    }
    return [
        _record(case, timing.time_calls(copy, warmup=1, iters=iters), device, nbytes=nbytes)
        for case, copy in ways.items()
    ]


def launches(nbytes: int = 102_400_000, *, iters: int = 20, device: str = "cuda") -> list[Record]:
    """Time the launch of a kernel, and `PIECES` small kernels against one over the same bytes.

    All pieces together have `nbytes`; the same is done with four floats in each.

    Returns:
        A record per case, of all its kernels. `values`: ``per_launch``, seconds of a kernel, and
        ``held``, the share in which Python is held.
    """
    found = []
    for floats, what in ((4, "16 B"), (nbytes // 4 // PIECES, f"{nbytes / PIECES / 1e3:.0f} kB")):
        whole = torch.zeros(PIECES * floats, device=device)
        pieces = list(whole.split(floats))
        ways: dict[str, tuple[int, Callable[[], Any]]] = {
            f"{PIECES} kernels of {what}": (PIECES, lambda p=pieces: [x.add_(1) for x in p]),
            f"{PIECES} x {what} in one call": (1, lambda p=pieces: torch._foreach_add_(p, 1)),
            f"one kernel of {PIECES} x {what}": (1, lambda w=whole: w.add_(1)),
        }
        for case, (kernels, work) in ways.items():
            seconds, held = _timed(work, iters, device)
            typical = statistics.median(seconds)
            values = {"per_launch": typical / kernels, "held": statistics.median(held) / typical}
            found.append(_record(case, seconds, device, values))
    return found


def beside(
    n: int = 4096, *, products: int = 40, nbytes: int = 1 << 28, copies: int = 8, iters: int = 5,
    device: str = "cuda",
) -> list[Record]:  # fmt: skip
    """Time matrix products and copies, each alone and both at once, on streams of their own.

    A measurement is of so many `products` of n x n matrices (float16), and `copies` of `nbytes`.

    Returns:
        Records of the products, of copies to pinned host memory by a copy engine ("engine"), and
        of copies within the GPU by a kernel ("kernel"): alone, and "products beside engine", ...
    """
    a = torch.randn(n, n, device=device).to(torch.float16 if device == "cuda" else torch.float32)
    out, source = torch.empty_like(a), torch.zeros(nbytes, dtype=torch.uint8, device=device)
    pinned = torch.empty(nbytes, dtype=torch.uint8, pin_memory=device == "cuda")
    target = torch.empty_like(source)

    def compute() -> None:
        for _ in range(products):
            torch.mm(a, a, out=out)

    def engine() -> None:
        for _ in range(copies):
            pinned.copy_(source, non_blocking=True)

    def kernel() -> None:  # an addition is a kernel; a plain copy within a GPU may use an engine
        for _ in range(20 * copies):
            torch.add(source, 0, out=target)

    cases = {("products",): (compute,), ("engine",): (engine,), ("kernel",): (kernel,)}
    for name, copy in (("engine", engine), ("kernel", kernel)):
        cases[f"products beside {name}", f"{name} beside products"] = (compute, copy)
    found = []
    for names, works in cases.items():
        spans = [_together(works, device) for _ in range(iters + 1)][1:]  # the first warms up
        for name, samples in zip(names, zip(*spans, strict=True), strict=True):
            found.append(_record(name, list(samples), device))
    return found


def lent_memory(
    nbytes: int = 1 << 28, *, iters: int = 10, device: str = "cuda", timeout: float = 60.0
) -> list[Record]:
    """Let a process write into another one's memory on the same GPU, by CUDA IPC.

    On a CPU a file that both map takes the part of the lent memory.

    Raises:
        AssertionError: The owner does not see what was written.
    """
    with tempfile.TemporaryDirectory() as folder:
        args = (nbytes, iters, device, str(Path(folder, "memory")))
        samples, seen = launch(_lend, *args, world_size=2, backend="gloo", timeout=timeout)
    if not seen:
        raise AssertionError("lent memory: the owner does not see what the borrower wrote")
    return [_record("written into another process", samples, device, nbytes=nbytes)]


def _lend(nbytes: int, iters: int, device: str, path: str) -> list[float] | bool:
    """Borrow on rank 0, timing the writes; own on rank 1, and say whether they arrived."""
    from torch.multiprocessing.reductions import reduce_tensor

    handle = [None]
    if dist.get_rank() == 1:
        if device == "cuda":
            mine = torch.zeros(nbytes // 4, device=device)
            handle = [reduce_tensor(mine)]
        else:
            mine, handle = _mapped(path, nbytes), [(_mapped, (path, nbytes))]
        dist.broadcast_object_list(handle, src=1)
        dist.barrier()  # IPC says nothing to the owner: the borrower must
        settle(device)
        return bool((mine == 7).all())
    dist.broadcast_object_list(handle, src=1)
    rebuild, arguments = handle[0]
    theirs = rebuild(*arguments)
    source = torch.full_like(theirs, 7.0)
    seconds, _ = _timed(lambda: theirs.copy_(source), iters, device)
    dist.barrier()
    return seconds


def _mapped(path: str, nbytes: int) -> torch.Tensor:
    return torch.from_file(path, shared=True, size=nbytes // 4)


def _timed(work: Callable[[], Any], iters: int, device: str) -> tuple[list[float], list[float]]:
    """Return the seconds of each call until it is done, and until Python has it back."""
    seconds, held = [], []
    for _ in range(iters + 3):  # three to warm up
        settle(device)
        begin = time.perf_counter()
        work()
        held.append(time.perf_counter() - begin)
        settle(device)
        seconds.append(time.perf_counter() - begin)
    return seconds[3:], held[3:]


def _together(works: Sequence[Callable[[], Any]], device: str) -> list[float]:
    """Run each work on its own stream, all at once; return the seconds of each."""
    if device != "cuda":
        return [_timed(work, 1, device)[0][0] for work in works]
    torch.cuda.synchronize()
    spans = []
    for work in works:
        stream = torch.cuda.Stream()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        with torch.cuda.stream(stream):
            begin.record()
            work()
            end.record()
        spans.append((begin, end))
    torch.cuda.synchronize()
    return [begin.elapsed_time(end) / 1e3 for begin, end in spans]


def settle(device: str) -> None:
    """Wait until a GPU has done all that was queued; a CPU has."""
    if device == "cuda":
        torch.cuda.synchronize()


def _record(
    case: str, samples: list[float], device: str, values: dict[str, float] | None = None,
    *, nbytes: int | None = None, **params: Any,
) -> Record:  # fmt: skip
    return Record(
        NAME, case, params | _versions(device), [samples], Tier.MEASURED,
        Provenance.here(backend=device), nbytes=nbytes, values=values or {},
    )  # fmt: skip
