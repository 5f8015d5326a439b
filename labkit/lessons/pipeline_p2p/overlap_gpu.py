"""On a GPU: what slows down matrix products more, the copy engine or a kernel that copies?

NCCL's send is a kernel: it takes multiprocessors (SMs) and memory bandwidth. A copy to pinned host
memory runs on a copy engine, which has neither. One GPU is enough to see the difference. Times are
those of CUDA events on each stream.
"""

from dataclasses import dataclass

import torch

__all__ = ["Gpu", "measure"]


@dataclass(frozen=True, slots=True)
class Gpu:
    """Seconds."""

    compute_alone: float
    engine_alone: float
    """Copies to pinned host memory, on a copy engine."""
    kernel_alone: float
    """Copies within the GPU's memory by a kernel."""
    compute_beside_engine: float
    engine_beside_compute: float
    compute_beside_kernel: float
    kernel_beside_compute: float


def measure(n: int = 4096, products: int = 40, nbytes: int = 1 << 28, copies: int = 8) -> Gpu:
    """Measure products and copies, each alone and both at once.

    Args:
        n: Rows and columns of the matrices (float16).
        products: Matrix products per measurement.
        nbytes: Bytes of a copy.
        copies: Copies per measurement.

    Raises:
        RuntimeError: There is no GPU.
    """
    if not torch.cuda.is_available():
        raise RuntimeError("overlap_gpu.measure needs a GPU; torch.cuda.is_available() is False.")
    a = torch.randn(n, n, device="cuda", dtype=torch.float16)
    out = torch.empty_like(a)
    source = torch.empty(nbytes, dtype=torch.uint8, device="cuda")
    pinned = torch.empty(nbytes, dtype=torch.uint8, pin_memory=True)
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

    for work in (compute, engine, kernel):
        _together(work)
    (alone,), (by_engine,), (by_kernel,) = _together(compute), _together(engine), _together(kernel)
    beside_engine, engine_beside = _together(compute, engine)
    beside_kernel, kernel_beside = _together(compute, kernel)
    return Gpu(
        alone, by_engine, by_kernel, beside_engine, engine_beside, beside_kernel, kernel_beside
    )


def _together(*works) -> list[float]:
    """Run each work on its own stream, all at once; return the seconds of each."""
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
