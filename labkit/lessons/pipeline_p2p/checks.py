"""The checks of lesson 05: deadlocks and orders, exposed time, and a matching layer."""

from labkit.lessons.pipeline_p2p.checks_exposed import check_exposed
from labkit.lessons.pipeline_p2p.checks_matching import check_consume
from labkit.lessons.pipeline_p2p.checks_orders import check_find_cycle, check_inference_program

__all__ = ["check_consume", "check_exposed", "check_find_cycle", "check_inference_program"]
