"""Queues on real ranks: what blocks what, what never ends, and whose error is told."""

import pytest
import torch.distributed as dist

from course.lessons.pipeline_p2p.experiment import PLAN
from course.lessons.pipeline_p2p.programs import Workload, train
from course.lessons.pipeline_p2p.schedules import Channel, programs
from labkit import LaunchTimeout, launch
from tests.course.lessons.refusals import patiently

pytestmark = pytest.mark.slow
NO_WORK = Workload(rows=8, width=16, forward=0.0, backward=0.0)


@pytest.mark.timed
def test_a_late_message_blocks_what_stands_behind_it_but_nothing_in_another_queue():
    work = Workload(rows=8, width=16)
    runs = [(programs(PLAN), channel, work) for channel in (Channel.ORDERED, Channel.TAGGED)]
    in_queue, by_tag = launch(train, runs, world_size=3)[0]
    assert by_tag.seconds < 0.8 * in_queue.seconds  # 300 against 488 ms, by the model


def test_two_orders_in_one_queue_deadlock_and_the_case_file_says_so():
    def judge(limit):
        with pytest.raises(LaunchTimeout) as caught:
            runs = [(programs(PLAN, ahead=2), Channel.ORDERED, NO_WORK)]
            launch(train, runs, world_size=3, timeout=limit)
        assert caught.value.case.running == [0, 1, 2]

    patiently(judge)


def breaks(entries, slot, **given):
    raise KeyError(f"of rank {dist.get_rank()}")


@pytest.mark.parametrize("channel", [Channel.ORDERED, Channel.TAGGED])
def test_an_error_in_a_learners_queue_is_what_is_told(channel):
    with pytest.raises(KeyError, match="of rank"):
        launch(train, [(programs(PLAN), channel, NO_WORK)], breaks, world_size=3)
