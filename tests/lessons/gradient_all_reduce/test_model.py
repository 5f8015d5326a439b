import pytest

from labkit.lessons.gradient_all_reduce import model


def test_the_wire_takes_buckets_in_turn():
    step = model.overlapped(
        [1.0, 2.0, 9.0], [10, 30, 10], lambda nbytes: nbytes / 10, backward=9.0, forward=5.0
    )
    assert [(s.begin, s.end) for s in step.sent] == [(1.0, 2.0), (2.0, 5.0), (9.0, 10.0)]
    assert step.communication == 5.0
    assert step.exposed == 1.0
    assert step.hidden == 4.0
    assert step.seconds == 15.0


def test_after_backward_everything_is_exposed():
    step = model.after_backward([10, 30], lambda nbytes: nbytes / 10, backward=9.0)
    assert step.exposed == step.communication == 4.0
    assert step.hidden == 0.0


def test_backward_finishes_the_last_parameters_first():
    ready, nbytes = model.ready_times([4, 8, 16], [3.0, 2.0, 1.0], [(2,), (1, 0)])
    assert ready == [1.0, 6.0]
    assert nbytes == [16, 12]


def test_ready_times_and_bytes_must_match():
    with pytest.raises(ValueError, match="2 ready times for 1 buckets"):
        model.overlapped([0.0, 1.0], [1], lambda nbytes: 0.0, backward=1.0)
