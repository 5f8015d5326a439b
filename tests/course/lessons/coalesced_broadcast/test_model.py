from course.lessons.coalesced_broadcast.model import Coalescing, flow, peak_bytes


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


def test_two_neighbouring_buckets_are_in_memory_and_lone_tensors_are_not():
    assert peak_bytes([]) == 0
    assert peak_bytes([[5], [7]]) == 0
    assert peak_bytes([[1, 2], [10], [4, 5], [3, 3]]) == 15
    assert peak_bytes([[1, 2, 3]]) == 6
