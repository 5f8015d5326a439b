"""The figures of lesson 05's thread, as they stand there, and what NCCL's source says of it."""

from course.published import Published, Source

THREAD = Source(
    "PyTorch developer forum, Memcpy based P2P communication for pipeline parallelism instead NCCL",
    "https://dev-discuss.pytorch.org/t/"
    "memcpy-based-p2p-communication-for-pipeline-parallelism-instead-nccl/2184",
    "first post, as read in 2026; it cites PyTorch 2.3 and NCCL 2.21.5",
)

INTERLEAVED = Published(
    97.441, "ms", "The total communication latency was 97.441ms (~5.8GB/s)", THREAD
)
OVERLAPPED = Published(75.075, "ms", "The total latency is reduced by x0.75 (75.075ms)", THREAD)
SEND = Published(270.14, "ms", "becomes 3 times slower (97.441ms → 270.14ms)", THREAD)
BATCH = Published(298.44, "ms", "the total latency increases (270.14ms → 298.44ms)", THREAD)
WAYS = {
    "tensor.to, interleaved": INTERLEAVED,
    "tensor.to, overlapped": OVERLAPPED,
    "NCCL send": SEND,
    "NCCL batch_isend_irecv": BATCH,
}
"""Ten transfers of 64 MB, five from GPU 0 to each of GPUs 2 and 3."""
APART = Published(
    (266.9, 396.8), "ms", "communication takes 266.9ms and computation 396.8ms", THREAD
)
TOGETHER = Published((277.8, 584.6), "ms", "each takes 277.8ms and 584.6ms", THREAD)
"""Ten transfers of 64 MB by NCCL, all from GPU 0 to GPU 2; ten forward passes of a ViT-g/14."""
MEMCPY = Published((133.0, 137.0), "ms", "two times faster than NCCL (133ms → 137ms)", THREAD)
"""The same ten transfers by memory copy: alone, and beside the forward passes."""
