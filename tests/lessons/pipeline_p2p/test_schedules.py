import pytest

from labkit.lessons.pipeline_p2p.schedules import (
    InvalidSchedule,
    Schedule,
    Task,
    eager_1f1b,
    gpipe,
    ideal_bubble,
    interleaved,
    one_f_one_b,
)


def words(tasks):
    return " ".join(map(str, tasks))


def test_orders_written_out_by_hand():
    schedule = one_f_one_b(stages=3, micro_batches=4)
    assert [words(tasks) for tasks in schedule.order] == [
        "F0 F1 F2 B0 F3 B1 B2 B3",
        "F0 F1 B0 F2 B1 F3 B2 B3",
        "F0 B0 F1 B1 F2 B2 F3 B3",
    ]
    assert words(gpipe(stages=2, micro_batches=2).order[1]) == "F0 F1 B0 B1"
    assert words(eager_1f1b(stages=2, micro_batches=4).order[0]) == "F0 F1 F2 B0 F3 B1 B2 B3"


def test_interleaved_order_of_rank_0_with_two_chunks():
    schedule = interleaved(world_size=2, chunks=2, micro_batches=4)
    order = " ".join(f"{task}.{task.stage}" for task in schedule.order[0])
    assert order == (
        "F0.0 F1.0 F0.2 F1.2 F2.0 B0.2 F3.0 B1.2 F2.2 B0.0 F3.2 B1.0 B2.2 B3.2 B2.0 B3.0"
    )


def test_activations_kept():
    assert gpipe(stages=4, micro_batches=8).peak_in_flight() == [8, 8, 8, 8]
    assert one_f_one_b(stages=4, micro_batches=8).peak_in_flight() == [4, 3, 2, 1]
    assert eager_1f1b(stages=4, micro_batches=8).peak_in_flight() == [7, 5, 3, 1]
    assert one_f_one_b(stages=4, micro_batches=2).peak_in_flight() == [2, 2, 2, 1]


def test_ideal_bubble():
    assert ideal_bubble(stages=4, micro_batches=8) == pytest.approx(3 / 11)
    assert ideal_bubble(stages=4, micro_batches=8, chunks=2) == pytest.approx(3 / 19)


def test_a_schedule_that_forgets_repeats_or_misplaces_is_refused():
    f0, b0 = Task("F", 0, 0), Task("B", 0, 0)
    with pytest.raises(InvalidSchedule, match="B0 of stage 0 appears 0 times"):
        Schedule("mine", ((f0,),), stages=1, micro_batches=1)
    with pytest.raises(InvalidSchedule, match="F0 of stage 0 appears 2 times"):
        Schedule("mine", ((f0, f0, b0),), stages=1, micro_batches=1)
    with pytest.raises(InvalidSchedule, match="is on rank 1, not 0"):
        Schedule("mine", ((f0,), (b0,)), stages=1, micro_batches=1)
    with pytest.raises(InvalidSchedule, match="F7 of stage 0 does not exist"):
        Schedule("mine", ((f0, b0, Task("F", 0, 7)),), stages=1, micro_batches=1)


def test_bad_numbers_are_refused():
    with pytest.raises(ValueError, match="6 % 4 = 2, not 0"):
        interleaved(world_size=4, chunks=2, micro_batches=6)
    with pytest.raises(ValueError, match="stages must be a whole number"):
        gpipe(stages=0, micro_batches=3)
