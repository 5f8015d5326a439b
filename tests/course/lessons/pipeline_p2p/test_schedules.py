import pytest

from course.lessons.pipeline_p2p import schedules
from course.lessons.pipeline_p2p.schedules import Batch, Channel, Costs, InvalidProgram, programs
from course.lessons.pipeline_p2p.simulator import Deadlock, find_deadlock, simulate

gpipe, one_f_one_b, eager_1f1b = BUILDERS = schedules.SCHEDULES.values()
FREE = Costs(forward=1.0, backward=2.0)
TAGGED = Channel.TAGGED
SLOW_LINK = Costs(forward=1.0, backward=2.0, leg=1.0)


def words(tasks):
    return " ".join(map(str, tasks))


def test_orders_written_out_by_hand():
    assert [words(tasks) for tasks in one_f_one_b(stages=3, micro_batches=4)] == [
        "F0 F1 F2 B0 F3 B1 B2 B3",
        "F0 F1 B0 F2 B1 F3 B2 B3",
        "F0 B0 F1 B1 F2 B2 F3 B3",
    ]
    assert words(gpipe(stages=2, micro_batches=2)[1]) == "F0 F1 B0 B1"
    assert words(eager_1f1b(stages=2, micro_batches=4)[0]) == "F0 F1 F2 B0 F3 B1 B2 B3"


def test_programs_written_out_by_hand():
    first, last = programs(one_f_one_b(stages=2, micro_batches=2))
    assert [str(step) for step in first] == [
        "F0", "F0 0→1", "F1", "F1 0→1 + B0 1→0", "B0", "B1 1→0", "B1",
    ]  # fmt: skip
    assert [str(step) for step in last] == [
        "F0 0→1", "F0", "B0", "B0 1→0 + F1 0→1", "F1", "B1", "B1 1→0",
    ]  # fmt: skip


@pytest.mark.parametrize("build", BUILDERS)
@pytest.mark.parametrize("stages", [1, 2, 3, 5])
def test_every_send_has_its_receive_and_batches_never_deadlock(build, stages):
    ranks = programs(build(stages=stages, micro_batches=4))
    schedules.check_programs(ranks)
    moved = [t for program in ranks for s in program if isinstance(s, Batch) for t in s.transfers]
    assert len(moved) == 2 * 2 * 4 * (stages - 1)  # both ends, F and B
    for channel in Channel:
        assert find_deadlock(ranks, channel=channel) == ""


@pytest.mark.parametrize("build", BUILDERS)
@pytest.mark.parametrize("ahead", [0, 1, 2])
def test_receives_earlier_suit_eager_1f1b_alone_and_not_too_far(build, ahead):
    ranks = programs(build(stages=4, micro_batches=8), ahead=ahead)
    runs = not find_deadlock(ranks, channel=Channel.ORDERED)
    assert runs == (ahead == 0 or (ahead == 1 and build is eager_1f1b))
    assert not find_deadlock(ranks, channel=Channel.TAGGED)


def test_naive_1f1b_deadlocks_in_every_order_but_per_direction_by_tag_or_by_puts():
    ranks = programs(one_f_one_b(stages=4, micro_batches=4), batched=False)
    deadlocks = {channel: find_deadlock(ranks, channel=channel) for channel in Channel}
    ends = [channel for channel in Channel if not deadlocks[channel]]
    assert ends == [Channel.DIRECTION, Channel.TAGGED, Channel.PUT]


def test_a_transfer_that_does_not_stand_once_at_both_ends_is_named():
    lonely = schedules.activation(0, 3)
    once, twice = (Batch((lonely,)),), (Batch((lonely,)), Batch((lonely,)))
    for ranks, words in (
        ([once, ()], "stands 0 times in the program of rank 1, not 1"),
        ([(), once], "stands 0 times in the program of rank 0, not 1"),
        ([twice, once], "stands 2 times in the program of rank 0, not 1"),
        ([once, once, once], "stands 1 times in the program of rank 2, not 0"),
    ):
        with pytest.raises(InvalidProgram, match=f"F3 0→1 {words}"):
            schedules.check_programs(ranks)
    with pytest.raises(TypeError, match=r"Batch\(\(a,\)\) for a single one"):
        Batch(lonely)


def test_one_order_gives_each_rank_its_own_transfers_and_names_what_is_wrong():
    schedule = one_f_one_b(stages=3, micro_batches=2)
    order = sorted({t for program in programs(schedule) for t in schedules.transfers_of(program)})
    for rank, program in enumerate(schedules.in_order(schedule, order)):
        assert schedules.transfers_of(program) == [t for t in order if rank in (t.src, t.dst)]
        assert program[-len(schedule[rank]) :] == schedule[rank]
    with pytest.raises(InvalidProgram, match=f"{order[0]} stands 2 times in the order, not 1"):
        schedules.in_order(schedule, [*order, order[0]])


@pytest.mark.parametrize("build", BUILDERS)
@pytest.mark.parametrize("stages", [1, 2, 4, 7])
@pytest.mark.parametrize("micro_batches", [1, 4, 9])
def test_the_ideal_bubble_exactly(build, stages, micro_batches):
    ranks = programs(build(stages=stages, micro_batches=micro_batches))
    timeline = simulate(ranks, FREE, channel=TAGGED)
    expected = schedules.ideal_bubble(stages=stages, micro_batches=micro_batches)
    assert timeline.bubble == pytest.approx(expected, abs=1e-12)
    assert timeline.seconds == pytest.approx(3.0 * (micro_batches + stages - 1))


def test_two_stages_by_hand():
    # stage 0: F0 0-1, its transfer 1-2, F1 1-2, transfer 2-3; stage 1: F0 2-3, B0 3-5, F1 5-6, ...
    timeline = simulate(programs(one_f_one_b(stages=2, micro_batches=2)), SLOW_LINK, channel=TAGGED)
    when = {(rank, str(task)): (at.begin, at.end) for rank, task, at in timeline.tasks}
    assert [when[0, name] for name in ("F1", "B0")] == [(1, 2), (6, 8)]
    assert [when[1, name] for name in ("F0", "B0", "B1")] == [(2, 3), (3, 5), (6, 8)]
    assert timeline.seconds == 11.0


def test_head_of_line_blocking_costs_gpipe_most_and_1f1b_least():
    def loss(build):
        ranks = programs(build(stages=4, micro_batches=8))
        ordered = simulate(ranks, SLOW_LINK, channel=Channel.ORDERED).seconds
        return ordered / simulate(ranks, SLOW_LINK, channel=Channel.TAGGED).seconds

    assert loss(gpipe) == pytest.approx(67 / 39)
    assert loss(one_f_one_b) == pytest.approx(52 / 49)
    assert loss(eager_1f1b) == pytest.approx(106 / 39)


def test_a_deadlock_raises_with_the_cycle():
    ranks = programs(one_f_one_b(stages=2, micro_batches=2), batched=False)
    with pytest.raises(Deadlock, match=r"B0 1→0 waits for F1 0→1"):
        simulate(ranks, SLOW_LINK, channel=Channel.ORDERED)
