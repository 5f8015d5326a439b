"""Figures that others published, each with its words and its address."""

from course.lessons.p2p_topology.topology_text import read_bandwidths
from course.published import Published, Source

_COMMIT = "434d6f6decc267a5f84e8ce8087c6274cda56ffb"
_REPOSITORY = f"https://github.com/anupambhatnagar/GPUPuzzlers/blob/{_COMMIT}"
_WHEN = "27 March 2023, commit 434d6f6"
PUZZLE = Source(
    "GPU Puzzlers, Communication is the Key to Success, puzzler 1",
    f"{_REPOSITORY}/_posts/2023-03-27-collectives.md",
    _WHEN,
)
ANSWER = Source(
    "GPU Puzzlers, answer to puzzler 1", f"{_REPOSITORY}/collectives/collectives-answer.md", _WHEN
)
ONE_WAY = Source(
    "GPU Puzzlers, unidirectional_bandwidth.png",
    f"{_REPOSITORY}/collectives/comms_images/unidirectional_bandwidth.png",
    _WHEN,
)
BOTH_WAYS = Source(
    "GPU Puzzlers, bidirectional_bandwidth.png",
    f"{_REPOSITORY}/collectives/comms_images/bidirectional_bandwidth.png",
    _WHEN,
)

DURATIONS = Published(
    (4.3, 53.3, 8.5),
    "ms",
    "from GPU 0 to GPU 1, GPU 2 and GPU 4 in 4.3 ms, 53.3 ms and 8.5 ms respectively",
    PUZZLE,
)
"""Of the copies 0 -> 1, 0 -> 2 and 0 -> 4."""
SIZE = Published(
    400,
    "MB",
    "With a 400 MB tensor the observed bandwidth is 93 GB/sec with 4 NVLinks, 47 GB/sec with 2 "
    "NVLinks and 7.5 GB/sec when using PCIe.",
    ANSWER,
)


def _matrix(text: str, source: Source) -> Published:
    """Keep a matrix of `p2pBandwidthLatencyTest` as printed: row = from, column = to."""
    rows = read_bandwidths(text)
    return Published(tuple(rate / 1e9 for row in rows for rate in row), "GB/s", text, source)


ON = _matrix(
    r"""Unidirectional P2P=Enabled Bandwidth (P2P Writes) Matrix (GB/s)
   D\D       0       1       2       3       4       5       6       7
     0 1503.49   93.32    7.50    7.51   46.91   46.93    7.49   93.56
     1   93.25 1517.27    7.51    7.51   93.29   46.92   46.93    7.49
     2    7.51    7.51 1521.42   83.06    7.50   93.28   46.91   46.90
     3    7.51    7.50   93.27 1525.55   46.91    7.50   93.34   46.92
     4   46.87   93.33    7.50   46.88 1519.30   93.43    7.51    7.51
     5   46.93   46.87   93.31    7.49   93.54 1515.84    7.51    7.51
     6    7.49   46.93   46.92   93.33    7.51    7.51 1520.77   93.38
     7   93.45    7.49   46.89   46.90    7.51    7.51   93.24 1518.33
""",
    ONE_WAY,
)
OFF = _matrix(
    r"""Unidirectional P2P=Disabled Bandwidth Matrix (GB/s)
   D\D       0       1       2       3       4       5       6       7
     0 1507.48    9.51   10.77   10.85   10.85   10.63   10.81   10.76
     1    9.52 1510.12   10.67   10.80   10.84   10.71   10.81   10.77
     2   10.75   10.86 1505.80    9.44   10.85   10.80   10.83   10.66
     3   10.70   10.83    9.43 1507.57   10.88   10.84   10.86   10.79
     4   10.69   10.81   10.78   10.87 1510.98    9.46   10.86   10.80
     5   10.57   10.85   10.75   10.82    9.46 1507.66   10.81   10.77
     6   10.61   10.77   10.74   10.79   10.81   10.77 1512.13    9.46
     7   10.72   10.79   10.64   10.82   10.47   10.60    9.44 1515.15
""",
    ONE_WAY,
)
BOTH_ON = _matrix(
    r"""Bidirectional P2P=Enabled Bandwidth Matrix (GB/s)
   D\D       0       1       2       3       4       5       6       7
     0 1517.52  184.88   14.72   14.73   93.06   93.00   14.70  185.36
     1  185.12 1523.95   14.75   14.74  184.84   92.99   92.98   14.69
     2   14.75   14.75 1519.43  184.89   14.73  184.95   93.01   93.01
     3   14.75   14.71  184.70 1517.80   92.99   14.73  184.86   92.99
     4   93.01  184.77   14.74   93.05 1520.82  185.10   14.71   14.71
     5   92.98   93.00  184.90   14.73  185.44 1519.06   14.71   14.75
     6   14.69   92.97   92.99  184.96   14.72   14.73 1516.32  184.76
     7  185.05   14.68   92.97   93.03   14.74   14.70  184.80 1513.50
""",
    BOTH_WAYS,
)

_ISSUE_814 = Source(
    "NCCL issue 814, Inconsistent P2P bandwidth and NCCL allreduce bus bandwidth",
    "https://github.com/NVIDIA/nccl/issues/814",
    "2023",
)
_ISSUE_1264 = Source(
    "NCCL issue 1264, Only ~783GByte/s out of theoretical 900GB/s HGX H100 SXM Nvlink4",
    "https://github.com/NVIDIA/nccl/issues/1264",
    "2024",
)
ELSEWHERE = {
    "6 RTX 4090 on PCIe": (
        Published(9.90, "GB/s", "0 912.68   9.90   9.90   9.90   9.90   9.90", _ISSUE_814),
        Published(22.16, "GB/s", "0 911.08  20.10  22.16  22.14  22.33  22.37", _ISSUE_814),
    ),
    "8 H100 on NVSwitch": (
        Published(376.65, "GB/s", "0 2494.76 371.02 376.65 376.60 376.82 375.59", _ISSUE_1264),
        Published(37.20, "GB/s", "0 2474.76  37.19  37.20  36.91  37.06  37.16", _ISSUE_1264),
    ),
}
"""Machine -> GPU 0 to GPU 2 with P2P on, and off. (The issue's XML calls the six cards 0x2684.)"""
