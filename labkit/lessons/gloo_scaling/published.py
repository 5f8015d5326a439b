"""The figures of lesson 01's thread, as they stand there."""

from labkit.measure.published import Published, Source

THREAD = Source(
    "PyTorch forum, Improving inter-process communication costs for `pytorch.distributed`",
    "https://discuss.pytorch.org/t/improving-inter-process-communication-costs-for-pytorch-distributed",
    "read 2026-11; our copy shows no dates",
)
CALLS = Published(1024, "calls", "def target(process_group, n_iters = 1024)", THREAD)
SECONDS = {
    pairs: Published(
        float(shown.removeprefix("0:00:")),
        "s",
        f"p = {pairs}; Time to run target() = {shown}",
        THREAD,
    )
    for pairs, shown in {
        1: "0:00:00.386286",
        2: "0:00:00.478979",
        3: "0:00:00.728055",
        4: "0:00:00.920900",
        5: "0:00:01.150142",
        6: "0:00:01.505277",
        7: "0:00:01.937280",
        8: "0:00:02.068987",
    }.items()
}
"""Pairs -> rank 0's time for all calls."""
CPUS = Published(
    48,
    "CPUs",
    "CPU(s):                48\nModel name:            Intel(R) Xeon(R) Silver 4214 CPU @ 2.20GHz",
    THREAD,
)
