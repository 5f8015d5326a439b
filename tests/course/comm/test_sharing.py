from graphlib import CycleError

import pytest

from course.comm.sharing import Activity, max_min, play


def test_max_min_by_hand():
    rates = {"a": 10.0, "b": 4.0}
    assert max_min({1: ["a"], 2: ["a", "b"], 3: ["b"]}, rates) == {1: 8.0, 2: 2.0, 3: 2.0}


@pytest.mark.parametrize(("queue", "ends"), [(None, [2.0, 2.0]), ("q", [1.0, 2.0])])
def test_activities_share_a_link_and_a_queue_does_not(queue, ends):
    activities = {name: Activity(nbytes=1.0, links=("a",), queue=queue) for name in "xy"}
    spans = play(activities, after={}, rates={"a": 1.0})
    assert [spans[name].end for name in "xy"] == ends


def test_a_circle_of_activities_is_named():
    with pytest.raises(CycleError, match="'x', 'y'"):
        play({"x": Activity(1), "y": Activity(1)}, after={"x": ["y"], "y": ["x"]}, rates={})
