"""Checks of lesson 3: the coalesced broadcast, the best cap, the same state everywhere."""

from labkit.course.checks.lesson_03.cap import check_best_cap
from labkit.course.checks.lesson_03.coalesce import check_coalesce
from labkit.course.checks.lesson_03.sameness import check_same_everywhere

__all__ = ["check_best_cap", "check_coalesce", "check_same_everywhere"]
