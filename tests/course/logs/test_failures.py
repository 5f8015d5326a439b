"""Tests that failed: told apart by their phase, and what those of one kind share."""

from course.logs import failures, pairs
from course.logs.nccl_tests import MAKING, MOVING, Failure
from tests.course.logs.test_report import record

LOST = "n1: Test NCCL failure common.cu:401 'remote process exited or there was a network error / '"
BEFORE = LOST.replace("401", "1279")


def failure(hosts, text=LOST, phase=MOVING, collective="all_to_all", gpus=4, slots=()):
    return Failure(collective, gpus, list(hosts), 7, text, phase, "x.log", slots)


FIVE = [("h2", "h8"), ("h3", "h8"), ("h8", "h9"), ("h5", "h16"), ("h7", "h16")]
SICK = [failure((f"a{i}", f"b{i}"), slots=("9d:00", f"{i}:00")) for i in range(13)]
FAILED = [
    *SICK,
    *(failure(pair, BEFORE, MAKING, name) for pair in FIVE for name in ("all_to_all", "send")),
    *(failure(pair, "no figures", MAKING, gpus=8) for pair in FIVE[:2]),
]


def test_what_failed_in_another_phase_is_another_row():
    rows = failures.table(FAILED, [], {}).rows
    assert [row[:3] for row in rows] == [
        [MOVING, "common.cu:401: remote process exited or there was a network error", 13],
        [MAKING, "common.cu:1279: remote process exited or there was a network error", 10],
        [MAKING, "nothing: its text ends", 2],
    ]
    assert rows[1][3] == "all_to_all with 4 GPUs a host: 5, send with 4 GPUs a host: 5"


def test_what_they_share_is_said_and_nothing_where_they_share_nothing():
    lost, making = (row[4] for row in failures.table(FAILED, [], {}).rows[:2])
    assert lost.startswith("13 pairs; no test of these completed")
    assert lost.endswith("GPU 9d:00 in each")
    assert "in each h16 or h8" in making and "GPU 9" not in making
    done = [record("alltoall", 8, 1e-3, 2, 4, names=list(pair)) for pair in FIVE]
    assert "completed" not in failures.table(FAILED, done, {}).rows[1][4]


def test_failures_that_the_rule_of_the_completed_ones_calls_slow_are_counted():
    rule = pairs.Rule("exactly one", ("a0", "a1", "a2", "b2"), 100, 100)
    assert failures.table(SICK, [], {("all_to_all", 4): rule}).rows[0][5] == "2 of 13"
    assert failures.table(SICK, [], {("all_to_all", 8): rule}).rows[0][5] == ""
