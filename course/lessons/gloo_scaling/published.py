"""The figures of lesson 01's thread, as they stand there."""

from course.published import Published, Source

THREAD = Source(
    "PyTorch forum, Improving inter-process communication costs for `pytorch.distributed`",
    "https://discuss.pytorch.org/t/improving-inter-process-communication-costs-for-pytorch-distributed",
    "read 2026-11; our copy shows no dates",
)
CALLS = Published(1024, "calls", "def target(process_group, n_iters = 1024)", THREAD)
_SHOWN = (
    "00.386286", "00.478979", "00.728055", "00.920900",
    "01.150142", "01.505277", "01.937280", "02.068987",
)  # fmt: skip
SECONDS = {
    pairs: Published(float(shown), "s", f"p = {pairs}; Time to run target() = 0:00:{shown}", THREAD)
    for pairs, shown in enumerate(_SHOWN, start=1)
}
"""Pairs -> rank 0's time for all calls."""
CPUS = Published(
    48,
    "CPUs",
    "CPU(s):                48\nModel name:            Intel(R) Xeon(R) Silver 4214 CPU @ 2.20GHz",
    THREAD,
)
