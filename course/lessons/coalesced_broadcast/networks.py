"""Networks for which exercise 3.4 asks the cheapest cap of a bucket, and what each cap costs."""

import math
from dataclasses import dataclass

import torch

from course.comm.buckets import MB, plan

PAGE, NEW = 4096, 32 * 2**20  # bytes of a page; of a buffer above which it is new memory every time


@dataclass(frozen=True, slots=True)
class Network:
    """What exercise 3.4 is asked: sizes of tensors, and what a machine charges."""

    nbytes: tuple[int, ...]
    budget: int
    alpha: float = 1e-4
    fault: float = 1e-6
    caps: tuple[int | None, ...] = (1 * MB, 4 * MB, 10 * MB, 25 * MB, 40 * MB, 100 * MB, None)
    trap: str = ""
    """What who errs here, and not at the networks before, has overlooked."""

    def price(
        self, cap: int | None, *, alive: int = 3, faults: bool = True, largest: bool = False
    ) -> tuple[float, int]:
        """Return what calls and new pages cost, in s, and the most bytes of `alive` buckets.

        They follow each other, or, as some will have it, are the `largest`.
        """
        sized = [torch.empty(nbytes, dtype=torch.uint8, device="meta") for nbytes in self.nbytes]
        planned = [bucket.nbytes for bucket in plan(sized, cap=cap)]
        pages = sum(math.ceil(nbytes / PAGE) for nbytes in planned if nbytes > NEW)
        if largest:
            planned.sort(reverse=True)
        most = max(sum(planned[start : start + alive]) for start in range(len(planned)))
        return len(planned) * self.alpha + pages * self.fault * faults, most

    def best(self, **view: int) -> int | None:
        """Return the cap that costs least among those that fit; -1 where none does."""
        prices = {cap: self.price(cap, **view) for cap in self.caps}
        fit = [cap for cap, (_, most) in prices.items() if most <= self.budget]
        return min(fit, key=prices.get, default=-1)


EVEN, EIGHT = (2 * MB,) * 50, tuple(size * MB for size in (2, 30, 5, 2, 20, 5, 10, 20))
WIDE = (300_000, 38 * MB, 2 * MB, 2 * MB, 17 * MB, 64, *[MB] * 40)
NETWORKS = {
    "50 tensors of 2 MB, plenty of memory": Network(EVEN, 400 * MB),
    "the same, 60 MB to spend": Network(EVEN, 60 * MB),
    "the same, and just what three buckets take": Network(EVEN, 72 * MB),
    "one tensor is larger than most caps": Network(WIDE, 60 * MB),
    "8 tensors, any three buckets": Network(EIGHT, 60 * MB),
    "a bucket of just 32 MiB, which is not more": Network(
        (2 * 2**20,) * 32, 400 * MB, alpha=1e-5, caps=(2**24, NEW, 2**26)
    ),
    "pages of which the last is not full": Network(
        (35_002_368, 35_000_320, 1229),
        400 * MB,
        alpha=5e-7,
        caps=(35_001_000, 36 * MB),
        trap="a page that is begun costs as much as a full one: round up",
    ),
    "300 MB, and pages that cost nothing": Network(
        (30 * MB,) * 10, 900 * MB, fault=0.0, trap="None is a cap, too: all in one bucket"
    ),
    "50 tensors of 6 MB, which fill no bucket": Network(
        (6 * MB,) * 50,
        400 * MB,
        alpha=0.0165,
        caps=(25 * MB, 40 * MB),
        trap="""count the plan's buckets, which are seldom full; and a bucket above 32 MiB pays for
            all its pages, not for those above""",
    ),
}
