"""Checks of lesson 2: the straggler, the buckets, the overlap, the exposed time."""

from labkit.lessons.gradient_all_reduce.checks.exposed import check_exposed
from labkit.lessons.gradient_all_reduce.checks.overlap import check_overlap
from labkit.lessons.gradient_all_reduce.checks.plan import check_plan
from labkit.lessons.gradient_all_reduce.checks.straggler import check_diagnose

__all__ = ["check_diagnose", "check_exposed", "check_overlap", "check_plan"]
