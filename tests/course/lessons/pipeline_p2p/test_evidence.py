"""The board of lesson 05 follows the evidence."""

from statistics import median
from types import SimpleNamespace

import pytest

from course.lessons.pipeline_p2p import evidence, experiment, simulator
from course.lessons.pipeline_p2p.schedules import Transfer


def run(record, idle, frame):
    rounds = [dict(RAN, idle=i, frame=f / 1e3) for i, f in zip(idle, frame, strict=True)]
    return SimpleNamespace(**record, values={"rounds": rounds}, others=1.5, tier="EMULATED")


RAN = {"bubble": 0.67, "forward": [0.0126, 0.0125, 0.0125]}
QUEUED = {"params": {"stages": 3, "micro_batches": 6, "leg": 0.008}}
FAST = {"params": {"stages": 3, "micro_batches": 6, "leg": 0.002}}
LONGER = {"params": {"stages": 3, "micro_batches": 6, "leg": 0.008, "longer_b0": 0.05}}
KNOWN = experiment.recorded()
IDLE = (0.385, 0.384, 0.386)


BOARDS = [
    ((0.27, 0.26, 0.27), (75, 76, 80), ["d"]),
    ((0.10, 0.09, 0.12), (25, 24, 30), ["b"]),
    ((0.27, 0.26, 0.27), (25, 24, 30), []),
    ((0.10, 0.26, 0.27), (75, 76, 80), ["b", "d"]),
    ((0.27, 0.26, 0.27), (75, 25, 80), ["d"]),
]


@pytest.mark.parametrize(("fast", "frame", "left"), BOARDS)
def test_the_board_follows_the_evidence(fast, frame, left):
    queued, longer = run(QUEUED, IDLE, (25, 24, 25)), run(LONGER, IDLE, frame)
    board = evidence.INVESTIGATION.empty()
    evidence.hold(board, queued, run(FAST, fast, (25, 24, 25)), longer)
    assert board.left == left


FRAMES = [
    ((0.4, 0.5, 0), {"c"}),
    ((25, 24, 26), {"a"}),
    ((12, 11, 13), {"b"}),
    ((0, 25, 0), {"a", "c"}),
]


@pytest.mark.parametrize(("frame", "letters"), FRAMES)
def test_what_puts_leave_of_the_frame_is_said_by_every_round(frame, letters):
    queued, put = run(QUEUED, IDLE, (25, 24, 25)), run(QUEUED, IDLE, frame)
    assert evidence.left_by_puts(queued, put) == letters


def test_one_task_earlier_takes_what_the_reply_says():
    both = (experiment.MYSTERY, experiment.EARLIER)
    assert [round(1e3 * KNOWN[str(case)].summary.median) for case in both] == [680, 341]


def test_the_frame_lasts_as_long_as_b0_on_either_links():
    for case in (experiment.MYSTERY, experiment.FASTER):
        frames = [1e3 * each["frame"] for each in KNOWN[str(case)].values["rounds"]]
        assert 24 < median(frames) < 27


@pytest.mark.parametrize("case", [experiment.MYSTERY, experiment.FASTER, experiment.LONGER])
def test_every_transfer_began_when_the_last_that_it_waits_for_had_ended(case):
    """The lesson's account, held to the whole recorded step: no other wait is needed."""
    seen = experiment.step(KNOWN[str(case)])
    when = {task: at for _, task, at in seen.tasks} | dict(seen.transfers)
    behind_computing = []
    for transfer, befores in simulator.waits(case.ranks, channel=case.channel).items():
        if isinstance(transfer, Transfer):
            ready = max(when[before].end for before in befores)
            assert -0.001 < when[transfer].begin - ready < 0.005
            behind_computing.append(when[transfer].begin - when[transfer.task].end)
    assert max(behind_computing) > 0.1, "data that lay ready for so long, in seconds"
