import random
import statistics

import pytest

from course.lessons.gradient_all_reduce.model import expected_latest


def test_the_latest_of_many_by_hand_and_by_simulation():
    assert expected_latest([5.0], 7) == 5.0
    assert expected_latest([0.0, 1.0], 3) == pytest.approx(1 - 0.5**3)
    assert expected_latest([0.0] * 19 + [60.0], 16) == pytest.approx(60 * (1 - 0.95**16))
    draw = random.Random(0)
    delays = [draw.expovariate(1.0) for _ in range(300)]
    simulated = statistics.fmean(max(draw.choices(delays, k=8)) for _ in range(20_000))
    assert expected_latest(delays, 8) == pytest.approx(simulated, rel=0.03)
