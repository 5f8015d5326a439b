"""What the pull request of lesson 3 states, in its own words."""

from course.published import Published, Source

PULL_REQUEST = Source(
    "PyTorch pull request 4978, 'DDP: coalescing many little broadcasts to improve performance'",
    "https://github.com/pytorch/pytorch/pull/4978",
    "2018",
)
ORIGINAL = Published(0.0436, "sec", "0.0436 sec (with the original logic)", PULL_REQUEST)
COALESCED = Published(0.0268, "sec", "0.0268 sec (with 1 coalesced b-cast)", PULL_REQUEST)
"""Both for "about 100MB of broadcast across two nodes", "a rough perf evaluation"."""
