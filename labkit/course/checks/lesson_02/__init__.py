"""Checks of lesson 2: the straggler, the buckets, the overlap, the exposed time."""

from labkit.course.checks.lesson_02.exposed import check_exposed
from labkit.course.checks.lesson_02.overlap import check_overlap
from labkit.course.checks.lesson_02.plan import check_plan
from labkit.course.checks.lesson_02.straggler import check_diagnose

__all__ = ["check_diagnose", "check_exposed", "check_overlap", "check_plan"]
