"""Lesson 01's experiment at tiny sizes: its measurements as relations."""

from functools import partial

import pytest
import torch
from pytest import fixture, mark

from course.lessons.gloo_scaling import experiment, programs
from course.lessons.gloo_scaling.programs import cpus_for
from labkit import launch
from labkit.measure import sched
from labkit.measure.records import Tier
from labkit.measure.timing import time_calls
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


@fixture(scope="module")
def sweep():
    return experiment.sweep([1, 2], ["one core", "together"], calls=10)


@needs_accounts
def test_a_sweep_has_a_record_per_placement_and_number_of_pairs(sweep):
    shown = [(r.case, r.params["pairs"], r.world_size) for r in sweep]
    assert shown == [(case, p, 2 * p) for case in ("one core", "together") for p in (1, 2)]
    launches = [experiment.ALONE if p == 1 else 1 for _, p, _ in shown]
    assert [len(record.seconds) for record in sweep] == [3 * times for times in launches]
    assert all(record.tier is Tier.MEASURED for record in sweep)


@mark.timed
@needs_accounts
def test_where_a_call_s_time_went_adds_up(sweep):
    for record in sweep:
        values = record.values
        assert 0 < values["loop"] < values["on_cpu"], "the loop thread is one of several"
        assert values["switches"] > 1, "a blocking call sleeps at least once"
        assert values["waiting"] > 0
        assert values["ours"] < 1.1 * min(2 * record.params["pairs"], len(affinity.cpus()))


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


@mark.timed
def test_fusing_beats_one_call_per_tensor():
    def per_tensor():
        group, tensors = programs.pair_group(), [torch.zeros(10, 10) for _ in range(128)]
        ways = (programs.fused, programs.blocking)
        return [time_calls(partial(way, tensors, group), warmup=1, iters=3) for way in ways]

    fused, blocking = map(min, launch(per_tensor, world_size=2)[0])
    assert fused < blocking / 3
