"""Checks of lesson 04: reading a topology, relaying in chunks, the best chunk, the best ring."""

from labkit.course.checks.lesson_04.chunks import check_best_chunk
from labkit.course.checks.lesson_04.reading import RATES, check_copy_time
from labkit.course.checks.lesson_04.relaying import check_relay
from labkit.course.checks.lesson_04.ring import check_ring

__all__ = ["RATES", "check_best_chunk", "check_copy_time", "check_relay", "check_ring"]
