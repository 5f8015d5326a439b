import pytest

from labkit.comm.sharing import Job, max_min, play
from labkit.lessons.pipeline_p2p.deadlock import Deadlock
from labkit.lessons.pipeline_p2p.pipeline import Channel, programs
from labkit.lessons.pipeline_p2p.schedules import (
    eager_1f1b,
    gpipe,
    ideal_bubble,
    interleaved,
    one_f_one_b,
)
from labkit.lessons.pipeline_p2p.simulator import Costs, simulate, simulate_programs

FREE = Costs(forward=1.0, backward=2.0)
SLOW_LINK = Costs(forward=1.0, backward=2.0, nbytes=1.0, rate=1.0)


@pytest.mark.parametrize("build", [gpipe, one_f_one_b, eager_1f1b])
@pytest.mark.parametrize("stages", [1, 2, 4, 7])
@pytest.mark.parametrize("micro_batches", [1, 4, 9])
def test_the_ideal_bubble_exactly(build, stages, micro_batches):
    timeline = simulate(build(stages=stages, micro_batches=micro_batches), FREE)
    expected = ideal_bubble(stages=stages, micro_batches=micro_batches)
    assert timeline.bubble == pytest.approx(expected, abs=1e-12)
    assert timeline.seconds == pytest.approx(3.0 * (micro_batches + stages - 1))


@pytest.mark.parametrize("chunks", [2, 3])
def test_the_ideal_bubble_of_interleaved(chunks):
    timeline = simulate(interleaved(world_size=4, chunks=chunks, micro_batches=8), FREE)
    expected = ideal_bubble(stages=4, micro_batches=8, chunks=chunks)
    assert timeline.bubble == pytest.approx(expected, abs=1e-12)


def test_two_stages_by_hand():
    # stage 0: F0 0-1, its transfer 1-2, F1 1-2, transfer 2-3; stage 1: F0 2-3, B0 3-5, F1 5-6, ...
    timeline = simulate(one_f_one_b(stages=2, micro_batches=2), SLOW_LINK)
    when = {(rank, str(task)): (span.begin, span.end) for rank, task, span in timeline.tasks}
    assert when[0, "F1"] == (1.0, 2.0)
    assert when[1, "F0"] == (2.0, 3.0)
    assert when[1, "B0"] == (3.0, 5.0)
    assert when[0, "B0"] == (6.0, 8.0)
    assert when[1, "B1"] == (6.0, 8.0)
    assert timeline.seconds == 11.0


def test_head_of_line_blocking_costs_gpipe_most_and_1f1b_least():
    def loss(build):
        schedule = build(stages=4, micro_batches=8)
        ordered = simulate(schedule, SLOW_LINK, channel=Channel.ORDERED).seconds
        return ordered / simulate(schedule, SLOW_LINK, channel=Channel.TAGGED).seconds

    assert loss(gpipe) == pytest.approx(67 / 39)
    assert loss(one_f_one_b) == pytest.approx(52 / 49)
    assert loss(eager_1f1b) == pytest.approx(106 / 39)


def test_less_order_is_never_slower():
    for build in (gpipe, one_f_one_b, eager_1f1b):
        schedule = build(stages=4, micro_batches=8)
        order = [Channel.ORDERED, Channel.EDGE, Channel.DIRECTION, Channel.TAGGED]
        seconds = [simulate(schedule, SLOW_LINK, channel=channel).seconds for channel in order]
        assert seconds == sorted(seconds, reverse=True)


def test_two_credits_are_as_good_as_any_here_and_one_is_not():
    schedule = eager_1f1b(stages=4, micro_batches=8)
    seconds = [simulate(schedule, SLOW_LINK, credits=n).seconds for n in (1, 2, 8)]
    assert seconds == [39.5, 39.0, 39.0]


def test_the_threads_overlap_slows_compute_threefold():
    # PUBLISHED: alone 396.8 ms of compute, 266.9 of transfers; together 584.6. One stage computes
    # while it receives what nobody here needs: play it as two independent jobs.
    def drag(name, running):
        return 3.0 if name == "compute" and "transfer" in running else 1.0

    jobs = {"compute": Job(396.8), "transfer": Job(277.8)}
    together = play(jobs, after={}, rates={}, drag=drag)
    assert together["compute"].end == pytest.approx(584.6, rel=0.02)


def test_compute_drag_slows_only_beside_a_transfer():
    schedule = gpipe(stages=2, micro_batches=4)
    slow = Costs(forward=1.0, backward=1.0, nbytes=1.0, rate=1.0, compute_drag=2.0)
    plain = Costs(forward=1.0, backward=1.0, nbytes=1.0, rate=1.0)
    assert simulate(schedule, slow).seconds > simulate(schedule, plain).seconds
    no_traffic = Costs(forward=1.0, backward=1.0, compute_drag=2.0)
    assert simulate(schedule, no_traffic).seconds == 2.0 * (4 + 2 - 1)


def test_a_deadlock_raises_with_the_cycle():
    ranks = programs(one_f_one_b(stages=2, micro_batches=2), batched=False)
    with pytest.raises(Deadlock, match=r"B0 1→0 waits for F1 0→1"):
        simulate_programs(ranks, SLOW_LINK, channel=Channel.ORDERED)


def test_max_min_by_hand():
    rates = {"a": 10.0, "b": 4.0}
    assert max_min({1: ["a"], 2: ["a", "b"], 3: ["b"]}, rates) == {1: 8.0, 2: 2.0, 3: 2.0}


def test_jobs_share_a_link_and_a_queue_does_not():
    jobs = {name: Job(nbytes=1.0, links=("a",)) for name in "xy"}
    spans = play(jobs, after={}, rates={"a": 1.0})
    assert [spans[name].end for name in "xy"] == [2.0, 2.0]
    jobs = {name: Job(nbytes=1.0, links=("a",), queue="q") for name in "xy"}
    spans = play(jobs, after={}, rates={"a": 1.0})
    assert [spans[name].end for name in "xy"] == [1.0, 2.0]


def test_a_circle_of_jobs_is_named():
    with pytest.raises(ValueError, match="x, y"):
        play({"x": Job(1), "y": Job(1)}, after={"x": ["y"], "y": ["x"]}, rates={})
