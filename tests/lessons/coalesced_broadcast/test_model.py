import pytest

from labkit.lessons.coalesced_broadcast.model import Coalescing, flow


def test_flow_of_equal_items_is_filling_plus_the_slowest_machine():
    assert flow([[1] * 5, [3] * 5, [2] * 5]) == 1 + 5 * 3 + 2
    assert flow([[], []]) == 0


def test_one_bucket_adds_everything_up_and_many_hide_the_copies():
    model = Coalescing(alpha=0.0, beta=1.0, copy=0.5)
    assert model.seconds([[10, 10, 10, 10]]) == 20 + 40 + 20
    assert model.seconds([[10, 10], [10, 10]]) == 10 + 40 + 10


def test_a_lone_tensor_is_not_copied():
    model = Coalescing(alpha=1.0, beta=1.0, copy=100.0)
    assert model.seconds([[5], [5]]) == 2 * (1 + 5)


def test_the_formula_finds_the_bucket_that_the_schedule_finds():
    model = Coalescing(alpha=1e-3, beta=1e-8, copy=1e-9)
    grain, count = 1000, 40_000
    best = model.best_bucket(grain * count)

    def seconds(bucket):
        per_bucket = max(2, round(bucket / grain))
        full, rest = divmod(count, per_bucket)
        return model.seconds([[grain] * per_bucket] * full + ([[grain] * rest] if rest else []))

    times = {factor: seconds(best * factor) for factor in (0.1, 0.5, 1, 2, 8)}
    assert min(times, key=times.get) == 1
    assert seconds(best) == pytest.approx(
        count * grain / best * 1e-3 + count * grain * 1e-8 + 2 * best * 1e-9, rel=0.02
    )
