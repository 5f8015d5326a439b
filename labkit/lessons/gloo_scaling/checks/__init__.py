"""The checks of lesson 01's exercises, one module each.

Some of these exercises are about time and races. Their checks do not hope that a mistake shows:
they script the calls (`timer`) and the meetings of the partners (`shared`) so that each usual
mistake shows every time, on a busy machine too.
"""

from labkit.lessons.gloo_scaling.checks.fused import check_fused_all_reduce
from labkit.lessons.gloo_scaling.checks.knee import check_knee
from labkit.lessons.gloo_scaling.checks.shared import check_shared_sum
from labkit.lessons.gloo_scaling.checks.timer import check_time_call

__all__ = ["check_fused_all_reduce", "check_knee", "check_shared_sum", "check_time_call"]
