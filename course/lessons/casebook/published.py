"""What was reported of each case: figures, words, threads."""

from course.published import Published, Source


def _reported(value, unit: str, words: str, thread: str, title: str, when: str) -> Published:
    return Published(value, unit, words, Source(title, f"https://github.com/{thread}", when))


CONNECT = _reported(
    (145.0, 298.0, 742.0),
    "s on 128, 256 and 644 ranks",
    "Cost is linear in world size — 128 ranks 145 s, 256 ranks 298 s, 644 ranks 742 s.",
    "meta-pytorch/torchcomms/pull/3627",
    "torchcomms: Order lazy peer materialization by XOR distance",
    "2026-08-12",
)
GROUPS = _reported(
    (1047.0, 5.0),
    "s, before and after",
    "greatly reduced the initialization time of a training task (from 1047s to under 5s)",
    "volcengine/veScale/issues/40",
    "veScale: Collective Communication Group Initialization Optimization",
    "2024-06-24",
)
LOCAL_GROUPS = _reported(
    (0.12, 0.25, 0.51, 0.87, 1.50, 2.87),
    "s for three groups per rank on 4 to 128 ranks",
    "a store_barrier only on the ranks that are park of the group and not the whole cluster",
    "pytorch/pytorch/pull/99931",
    "PyTorch: Scalable PG initiation",
    "2023-04-24",
)
METRICS = _reported(
    (4.1, 43.7),
    "s on 512 and 4096 ranks",
    "2.9GB 常驻 / 43.7s CPU",
    "bo-ke/llm-internal-medicine/pull/62",
    "llm-internal-medicine: a fixed-schema all_reduce instead of all_gather_object",
    "2026-08-29",
)
AFFINITY = _reported(
    (15.2, 41.6),
    "GB/s of FP8 dispatch, on cores 0-71 and on the full node",
    "the forked processes get their affinity from the launched process",
    "uccl-project/uccl/issues/956",
    "UCCL: libfabric-CXI backend for UCCL-EP on HPE Slingshot",
    "2026-06-12",
)
FIRST = _reported(
    (700.0, 0.003),
    "ms, the first call and what nccl-tests report",
    "is taking about ~700ms to send 1000 bytes. nccl-tests report the expected latency (~3us)",
    "NVIDIA/nccl/issues/1487",
    "NCCL: 1000x latency with ncclSend and ncclRecv",
    "2024-10-18",
)
STREAMS = _reported(
    (7.63, 8, 86.62),
    "Gbit/s of the slowest flow, flows, Gbit/s of all",
    "min_bw * flow_num ≈ nccl-test performance",
    "NVIDIA/nccl/issues/450",
    "NCCL: Optimize AllReduce performance in 100Gbps TCP network",
    "2021-01-10",
)
COLLECTOR = _reported(
    (1.25, 1.46),
    "s of pause",
    "The 1.25-1.46 s pause is the cost of scanning the long-lived heap",
    "marin-community/marin/pull/9224",
    "marin: Coordinate hero garbage collection at shared steps",
    "2026-09-17",
)
BUFFERS = _reported(
    (3.0,),
    "GPUs without NVLink",
    "DDP `broadcast_buffers=True` causes severe GPU starvation on multi-GPU setups without NVLink",
    "ultralytics/ultralytics/issues/24410",
    "Ultralytics: broadcast_buffers and GPU starvation",
    "2026-05-06",
)
COLLECTOR_STEPS = _reported(
    (16.715, 18.458),
    "s per step, in quiet stretches and in slow ones",
    "16.715 seconds/update in the quiet group versus 18.458 in the slow group",
    "marin-community/marin/issues/9205",
    "marin: Diagnose recurring hero timestamp gaps outside the step timer",
    "2026-09-16",
)
COLLECTOR_TITAN = _reported(
    1.5,
    "% of a step, on 512 GPUs",
    "gave a perf boost of ~1.5% per iter just by virtue of better synch",
    "pytorch/torchtitan/pull/148",
    "torchtitan: enable gc control scheduling to help avoid stragglers",
    "2024-03-15",
)
BUFFERS_FIX = _reported(
    3.0,
    "GPUs",
    "on non NVLink systems and when training on big resolution, sync between GPU was a big "
    "bottleneck",
    "ultralytics/ultralytics/pull/24412",
    "Ultralytics: Set DDP broadcast_buffers=False by default",
    "2026-05-06",
)
STREAMS_WHY = _reported(
    25.0,
    "Gbit/s, of one socket if possible",
    "the NCCL bandwidth will be the minimum speed of the sockets multiplied by the number of "
    "sockets",
    "NVIDIA/nccl-tests/issues/83",
    "nccl-tests: NCCL unable to use full TCP bandwidth in Azure",
    "2021-05-17",
)
INTERFACE = _reported(
    (24160.0, 258.0),
    "ms of an AllToAll, before and after the export",
    "AllToAll耗时: 24160ms for stride:5000000",
    "pytorch/gloo/issues/335",
    "gloo: Problem with the performance of All_to_All communication",
    "2025-08-06",
)
LATE = _reported(
    4.0,
    "ms, and what it says of the cause",
    "I suspect what you are seeing could be load imbalance, i.e., one GPU showed up 4ms later "
    "than its peers.",
    "NVIDIA/nccl/issues/701",
    "NCCL: allreduce efficiency degraded greatly during training compared with nccl-tests",
    "2022-07-08",
)
OVERLAP = _reported(
    (157.27, 207.14),
    "ms, in turn and overlapped",
    "Overlapped(AllReduce, cutlass) Time: **207.144745** ms cutlass: 109.829987 ms",
    "parasailteam/coconet/issues/6",
    "CoCoNet: Poor performance after cutlass and allreduce overlap",
    "2023-03-28",
)
OVERLAP_KERNELS = _reported(
    (2.0, 4.0, 8.0),
    "ms of one kernel, alone and (4 to 8) beside an all_reduce",
    "was much slower than not overlapped ones (4~8ms vs 2ms)",
    "NVIDIA/nccl/issues/338",
    "NCCL: computation overlapped with nccl get much slower",
    "2020-05-22",
)
OVERLAP_MEMORY = _reported(
    2.0,
    "times longer, at most",
    "You may not compete for SMs but still compete for memory bandwidth.",
    "NVIDIA/nccl/issues/1433",
    "NCCL: How to handle comp-comm overlapping?",
    "2024-09-09",
)
HOSTS = _reported(
    (100.0, 70.0, 58.0, 58.0, 40.0),
    "GB/s of busbw on 2, 3, 4, 5 and 6 hosts",
    "when I select three servers for the test, the bandwidth decreases to 70 GB/s",
    "NVIDIA/nccl-tests/issues/169",
    "nccl-tests: if the bandwidth results of the Nccl test are related to the number of nodes?",
    "2023-10-12",
)
HOSTS_WHY = _reported(
    2.0,
    "hosts",
    "can give perf figures that exceed the capabilities of the external networking card unless "
    "you set `NCCL_ALGO=RING`",
    "NVIDIA/nccl-tests/issues/169",
    "the reply in the same thread",
    "2023-10-12",
)
HOSTS_BUG = _reported(
    (48.0, 60.0),
    "GB/s to be had with RING, and with TREE once a fault was mended",
    "The bug, I believe, happens with TREE, where we use the wrong NIC",
    "NVIDIA/nccl/issues/307",
    "NCCL: infiniband performance",
    "2020-04-09",
)
