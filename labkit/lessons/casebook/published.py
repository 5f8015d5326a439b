"""What was reported of each case: figures, words, threads."""

from labkit.measure.published import Published, Source

CONNECT = Published(
    (145.0, 298.0, 742.0),
    "s on 128, 256 and 644 ranks",
    "Cost is linear in world size — 128 ranks 145 s, 256 ranks 298 s, 644 ranks 742 s.",
    Source(
        "torchcomms: Order lazy peer materialization by XOR distance",
        "https://github.com/meta-pytorch/torchcomms/pull/3627",
        "2026-08-12",
    ),
)
GROUPS = Published(
    (1047.0, 5.0),
    "s, before and after",
    "greatly reduced the initialization time of a training task (from 1047s to under 5s)",
    Source(
        "veScale: Collective Communication Group Initialization Optimization",
        "https://github.com/volcengine/veScale/issues/40",
        "2024-06-24",
    ),
)
LOCAL_GROUPS = Published(
    (0.12, 0.25, 0.51, 0.87, 1.50, 2.87),
    "s for three groups per rank on 4 to 128 ranks",
    "a store_barrier only on the ranks that are park of the group and not the whole cluster",
    Source(
        "PyTorch: Scalable PG initiation",
        "https://github.com/pytorch/pytorch/pull/99931",
        "2023-04-24",
    ),
)
METRICS = Published(
    (4.1, 43.7),
    "s on 512 and 4096 ranks",
    "2.9GB 常驻 / 43.7s CPU",
    Source(
        "llm-internal-medicine: a fixed-schema all_reduce instead of all_gather_object",
        "https://github.com/bo-ke/llm-internal-medicine/pull/62",
        "2026-08-29",
    ),
)
AFFINITY = Published(
    (15.2, 41.6),
    "GB/s of FP8 dispatch, on cores 0-71 and on the full node",
    "the forked processes get their affinity from the launched process",
    Source(
        "UCCL: libfabric-CXI backend for UCCL-EP on HPE Slingshot",
        "https://github.com/uccl-project/uccl/issues/956",
        "2026-06-12",
    ),
)
FIRST = Published(
    (700.0, 0.003),
    "ms, the first call and what nccl-tests report",
    "is taking about ~700ms to send 1000 bytes. nccl-tests report the expected latency (~3us)",
    Source(
        "NCCL: 1000x latency with ncclSend and ncclRecv",
        "https://github.com/NVIDIA/nccl/issues/1487",
        "2024-10-18",
    ),
)
STREAMS = Published(
    (7.63, 8, 86.62),
    "Gbit/s of the slowest flow, flows, Gbit/s of all",
    "min_bw * flow_num ≈ nccl-test performance",
    Source(
        "NCCL: Optimize AllReduce performance in 100Gbps TCP network",
        "https://github.com/NVIDIA/nccl/issues/450",
        "2021-01-10",
    ),
)
COLLECTOR = Published(
    (1.25, 1.46),
    "s of pause",
    "The 1.25-1.46 s pause is the cost of scanning the long-lived heap",
    Source(
        "marin: Coordinate hero garbage collection at shared steps",
        "https://github.com/marin-community/marin/pull/9224",
        "2026-09-17",
    ),
)
BUFFERS = Published(
    (3.0,),
    "GPUs without NVLink",
    "DDP `broadcast_buffers=True` causes severe GPU starvation on multi-GPU setups without NVLink",
    Source(
        "Ultralytics: broadcast_buffers and GPU starvation",
        "https://github.com/ultralytics/ultralytics/issues/24410",
        "2026-05-06",
    ),
)
