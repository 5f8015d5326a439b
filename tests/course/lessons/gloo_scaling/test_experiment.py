"""Lesson 01's experiment at tiny sizes: its measurements as relations."""

import pytest
from pytest import mark

from course.lessons.gloo_scaling import experiment, programs
from course.lessons.gloo_scaling.programs import cpus_for
from labkit import launch
from labkit.measure import sched
from labkit.measure.records import Tier
from labkit.ranks import affinity

pytestmark = pytest.mark.slow

needs_accounts = mark.skipif(not experiment.can_measure(), reason="no CPU accounts here")


@mark.parametrize(
    ("placement", "places"),
    [
        ("free", [[4, 7], [4, 7], [4, 7], [4, 7], [4, 7], [4, 7]]),
        ("one core", [[4], [4], [4], [4], [4], [4]]),
        ("together", [[4], [4], [7], [7], [4], [4]]),
        ("apart", [[4], [7], [4], [7], [4], [7]]),
    ],
)
def test_where_ranks_may_run(placement, places):
    assert [cpus_for(placement, rank, [4, 7]) for rank in range(6)] == places


def test_an_unknown_placement_lists_those_there_are():
    with pytest.raises(ValueError, match="one core, free, together, apart; got 'somewhere'"):
        cpus_for("somewhere", 0, [0])


def test_without_accounts_the_recorded_points_stand_in(monkeypatch, capsys):
    monkeypatch.setattr(sched, "available", lambda: False)
    points = experiment.sweep([1, 8], ["together", "one core"])
    assert [(r.case, r.params["pairs"]) for r in points] == [
        ("together", 1), ("together", 8), ("one core", 1), ("one core", 8)
    ]  # fmt: skip
    assert {record.tier for record in points} == {Tier.RECORDED}
    assert "a recorded run instead" in capsys.readouterr().out


@needs_accounts
def test_partners_together_leave_the_other_cpus_alone():
    def program():
        programs.move("together")
        return affinity.cpus()

    cpus = affinity.cpus()
    assert launch(program, world_size=4) == [cpus_for("together", r, cpus) for r in range(4)]
