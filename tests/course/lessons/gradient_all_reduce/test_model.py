import random
import statistics

import pytest

from course.lessons.gradient_all_reduce import model


def test_the_wire_takes_buckets_in_turn():
    ready, nbytes = [1.0, 2.0, 9.0], [10, 30, 10]
    assert model.sending(ready, nbytes, lambda b: b / 10) == [(1.0, 2.0), (2.0, 5.0), (9.0, 10.0)]
    assert model.exposed(ready, nbytes, lambda b: b / 10, backward=9.0) == 1.0
    assert model.exposed(ready, nbytes, lambda b: b / 10, backward=11.0) == 0.0
    assert model.exposed([], [], lambda b: b / 10, backward=9.0) == 0.0


def test_backward_finishes_the_last_parameters_first():
    ready, nbytes = model.ready_times([4, 8, 16], [3.0, 2.0, 1.0], [(2,), (1, 0)])
    assert ready == [1.0, 6.0]
    assert nbytes == [16, 12]


def test_ready_times_and_bytes_must_match():
    with pytest.raises(ValueError, match="2 ready times for 1 buckets"):
        model.sending([0.0, 1.0], [1], lambda nbytes: 0.0)


def test_nearly_all_of_backwards_work_is_in_the_convolutions():
    shares = model.vgg11_backward_shares()
    assert len(shares) == 22 and sum(shares) == pytest.approx(1.0)
    assert sum(shares[:16]) > 0.9


def test_the_latest_of_many_by_hand_and_by_simulation():
    assert model.expected_latest([5.0], 7) == 5.0
    assert model.expected_latest([0.0, 1.0], 3) == pytest.approx(1 - 0.5**3)
    assert model.expected_latest([0.0] * 19 + [60.0], 16) == pytest.approx(60 * (1 - 0.95**16))
    draw = random.Random(0)
    delays = [draw.expovariate(1.0) for _ in range(300)]
    simulated = statistics.fmean(max(draw.choices(delays, k=8)) for _ in range(20_000))
    assert model.expected_latest(delays, 8) == pytest.approx(simulated, rel=0.03)
