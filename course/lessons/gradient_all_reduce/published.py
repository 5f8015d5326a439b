"""What the forum thread of lesson 2 states, in its own words."""

from course.published import Published, Source

THREAD = Source(
    "PyTorch forum, 'Slow NCCL gradient synchronization in distributed training'",
    "https://discuss.pytorch.org/t/slow-nccl-gradient-synchronization-in-distributed-training/89625",
    "July 2020",
)
IN_TRAINING = Published(
    280.682, "ms", "It turns out the classifier layers take 280.682 ms (total size: 471MB).", THREAD
)
BENCHMARK = Published(60.0, "ms", "the same amount of data the time is about 60ms", THREAD)
NODES = Published(16, "nodes", "1 GPU per node, 16 nodes, 128 samples per GPU", THREAD)
"""With 8, "the I/O, forward, and optimization phases have similar time durations"."""
