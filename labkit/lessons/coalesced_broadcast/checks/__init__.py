"""Checks of lesson 3: the coalesced broadcast, the best cap, the same state everywhere."""

from labkit.lessons.coalesced_broadcast.checks.cap import check_best_cap
from labkit.lessons.coalesced_broadcast.checks.coalesce import check_coalesce
from labkit.lessons.coalesced_broadcast.checks.sameness import check_same_everywhere

__all__ = ["check_best_cap", "check_coalesce", "check_same_everywhere"]
