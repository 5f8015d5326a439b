"""Lesson 6's figures that others published, with their words and addresses."""

from dataclasses import dataclass

from course.published import Published, Source
from labkit.measure.tables import Table

_PUZZLERS = "https://github.com/anupambhatnagar/GPUPuzzlers/blob/434d6f6/"
_BOOK = "https://github.com/stas00/ml-engineering/blob/744d01e/"
_NCCL = "https://github.com/NVIDIA/nccl/blob/"

ANSWER = Source(
    "GPU Puzzlers, answer to puzzler 2",
    _PUZZLERS + "collectives/collectives-answer.md",
    "2023, commit 434d6f6",
)
BOOK = Source(
    "Stas Bekman, Machine Learning Engineering, network",
    _BOOK + "network/README.md",
    "commit 744d01e, 2026-08-22",
)
TUNER = Source(
    "NVIDIA NCCL 2.30.7, src/graph/tuning.cc",
    _NCCL + "5067397/src/graph/tuning.cc",
    "commit 5067397, 2026-06-11",
)

COLUMNS = (("Tree", 1e9), ("Ring", 1e9), ("Tree", 2e9), ("Ring", 2e9))
"""What the columns of the puzzle's table say: NCCL's algorithm, and bytes on each of 16 GPUs."""
ROWS = {
    "all_reduce": Published(
        (2.2, 4.7, 4.6, 13.5), "ms", "| All Reduce | 2.2 | 4.7 | 4.6 | 13.5 |", ANSWER
    ),
    "reduce + broadcast": Published(
        (2.7, 0.8, 2.4, 3.0, 5.0, 1.7, 7.4, 3.8),
        "ms",
        "| Reduce, Broadcast (Total) |2.7, 0.8 (3.5) | 2.4, 3.0 (5.4) | 5.0, 1.7 (6.7) "
        "| 7.4, 3.8 (11.2) |",
        ANSWER,
    ),
    "reduce_scatter + all_gather": Published(
        (21.5, 22.6, 37.3, 43.2, 41.6, 42.6, 105.7, 106.1),
        "ms",
        "| Reduce Scatter, All Gather (Total) | 21.5, 22.6 (44.1) | 37.3, 43.2 (80.5) "
        "| 41.6, 42.6 (84.2) |105.7, 106.1 (211.8) |",
        ANSWER,
    ),
}
"""The puzzle's table, row by row; the steps of a two-step way one after the other."""
GPUS = 16


@dataclass(frozen=True, slots=True)
class Step:
    """One call of one collective in the puzzle's table, as labelled there."""

    way: str
    """The row: one of the three ways to sum."""
    name: str
    """As in torch.distributed."""
    algorithm: str
    nbytes: float
    seconds: float


def steps() -> list[Step]:
    """Return the table's twenty steps."""
    found = []
    for way, row in ROWS.items():
        names = way.split(" + ")
        for place, ms in enumerate(row.value):
            column, step = divmod(place, len(names))
            found.append(Step(way, names[step], *COLUMNS[column], ms / 1e3))
    return found


def table() -> Table:
    """Lay the puzzle's table out as it was published, in milliseconds."""
    rows = []
    for way, row in ROWS.items():
        per_cell = len(row.value) // len(COLUMNS)
        cells = [row.value[i : i + per_cell] for i in range(0, len(row.value), per_cell)]
        rows.append([way, *(" + ".join(map(str, cell)) for cell in cells)])
    columns = ["ms on 16 GPUs", *(f"{a}, {nbytes / 1e9:.0f} GB" for a, nbytes in COLUMNS)]
    return Table(columns, rows, title=f"PUBLISHED: {ANSWER}")


NVLINK = Published(
    450,
    "GB/s",
    "| NVLink 4     |                        12.50 |     2 |    18 |                450 |"
    "              900 | H100, H200, GH200 |",
    BOOK,
)
"""One way, all links of a GPU: the fastest that a GPU had when the puzzle's table was made."""
H200 = {
    "all_reduce, the switch adds": Published(
        480.0,
        "GB/s",
        "| all-reduce, `NCCL_NVLS_ENABLE=1` | NVLS | 480.0GBps |         107% |",
        BOOK,
    ),
    "all_reduce, Ring": Published(
        367.2,
        "GB/s",
        "| all-reduce, `NCCL_NVLS_ENABLE=0` | Ring | 367.2GBps |          82% |",
        BOOK,
    ),
    "reduce_scatter": Published(
        362.9,
        "GB/s",
        "| reduce-scatter                   | Ring | 362.9GBps |          81% |",
        BOOK,
    ),
    "all_gather": Published(
        361.4,
        "GB/s",
        "| all-gather                       | Ring | 361.4GBps |          80% |",
        BOOK,
    ),
}
"""busbw on 8x H200 with 16 GiB, nccl-tests."""

SHARE = Published((0.5,), "of the bandwidth", "busBw = std::min(llMaxBw, busBw * .5);", TUNER)
SHARE_128 = Published((0.92,), "of the bandwidth", "busBw * (0.92 /*120.0/128.0*/)", TUNER)
BASE = Published(
    (6.6, 14.0, 8.4), "µs", "{  6.8, 14.0,  8.4 }, {  6.6, 14.0,  8.4 },  // Tree, Ring", TUNER
)
NVLINK_HOP = Published((0.6, 1.9, 3.4), "µs", "{ { 0.6, 1.25, 4.0 }, { 0.6, 1.9, 3.4 },", TUNER)
NETWORK_HOP = Published((2.7, 4.0, 14.0), "µs", "{ { 5.0, 8.5, 14 }, { 2.7, 4.0, 14.0 },", TUNER)


def protocols() -> Table:
    """Lay NCCL's three protocols out, as its tuner reckons with them on a Ring."""
    how = {
        "LL": "4 bytes of data and a 4-byte flag at a time: the flag says that they are there",
        "LL128": "120 bytes of data and 8 of flag at a time; needs links that keep 128 together",
        "Simple": "whole pieces, then a memory fence and one flag",
    }
    shares = (*SHARE.value, *SHARE_128.value, 1.0)
    latencies = zip(BASE.value, NVLINK_HOP.value, NETWORK_HOP.value, strict=True)
    rows = [
        [name, meaning, f"{share:.0%}", *micros]
        for (name, meaning), share, micros in zip(how.items(), shares, latencies, strict=True)
    ]
    columns = ["protocol", "how the receiver knows", "of the bandwidth", "start (µs)"]
    columns += ["per NVLink hop", "per network hop"]
    return Table(columns, rows, title=f"PUBLISHED (constants of a model): {TUNER}")
