import pytest

from course.lessons.pipeline_p2p.schedules import SCHEDULES, Channel, Costs, ideal_bubble, programs
from course.lessons.pipeline_p2p.simulator import Deadlock, simulate

gpipe, one_f_one_b, eager_1f1b = BUILDERS = SCHEDULES.values()
FREE = Costs(forward=1.0, backward=2.0)
TAGGED = Channel.TAGGED
SLOW_LINK = Costs(forward=1.0, backward=2.0, leg=1.0)


@pytest.mark.parametrize("build", BUILDERS)
@pytest.mark.parametrize("stages", [1, 2, 4, 7])
@pytest.mark.parametrize("micro_batches", [1, 4, 9])
def test_the_ideal_bubble_exactly(build, stages, micro_batches):
    ranks = programs(build(stages=stages, micro_batches=micro_batches))
    timeline = simulate(ranks, FREE, channel=TAGGED)
    expected = ideal_bubble(stages=stages, micro_batches=micro_batches)
    assert timeline.bubble == pytest.approx(expected, abs=1e-12)
    assert timeline.seconds == pytest.approx(3.0 * (micro_batches + stages - 1))


def test_two_stages_by_hand():
    # stage 0: F0 0-1, its transfer 1-2, F1 1-2, transfer 2-3; stage 1: F0 2-3, B0 3-5, F1 5-6, ...
    timeline = simulate(programs(one_f_one_b(stages=2, micro_batches=2)), SLOW_LINK, channel=TAGGED)
    when = {(rank, str(task)): (at.begin, at.end) for rank, task, at in timeline.tasks}
    assert when[0, "F1"] == (1.0, 2.0)
    assert when[1, "F0"] == (2.0, 3.0)
    assert when[1, "B0"] == (3.0, 5.0)
    assert when[0, "B0"] == (6.0, 8.0)
    assert when[1, "B1"] == (6.0, 8.0)
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
