"""Lesson 01's experiment at tiny sizes: where its ranks run, and what cannot run."""

import pytest

from course.lessons.gloo_scaling import experiment as problem
from course.lessons.gloo_scaling import programs
from labkit.measure import sched
from labkit.measure.records import Tier
from labkit.ranks import affinity

pytestmark = pytest.mark.slow

needs_accounts = pytest.mark.skipif(not problem.can_measure(), reason="no CPU accounts here")


@needs_accounts
def test_partners_share_a_cpu_or_are_apart_and_an_arm_may_have_any_name():
    def program(arm):
        (own,) = affinity.cpus()
        return {"samples": [1.0], "own": own}

    arms = {
        "mine": {"pairs": 1, "cpus": 2, "apart": True},
        "one": {"pairs": 2, "cpus": 1},
        "two": {"pairs": 2, "cpus": 2},
    }
    made = {r.case: r.values["own"] for r in problem.compare("B", program, arms, rounds=1)}
    first, second = affinity.cpus()[:2]
    both = [(first + second) / 2]
    assert made == {"mine": both, "one": [first], "two": both}


@needs_accounts
def test_what_cannot_run_is_left_out_in_a_line_that_says_what_can(capsys):
    arms = {"huge": {"pairs": 8, "cpus": 10**4}, "none": {"pairs": 0}, "good": {"pairs": 1}}
    assert [*problem.possible(arms)] == ["good"]
    told = capsys.readouterr().out
    assert "cpus=10000; 1 to" in told and "pairs=0; 1 to 16 are possible here" in told


def test_without_accounts_the_recorded_runs_stand_in(monkeypatch, capsys):
    monkeypatch.setattr(sched, "available", lambda: False)
    made = problem.compare("B", programs.calls, problem.arms("B"))
    made += problem.posted(programs.as_posted, {"on one CPU": {"cpus": 1}})
    assert {record.tier for record in made} == {Tier.RECORDED}
    assert "a recorded run" in capsys.readouterr().out


@needs_accounts
def test_the_posted_script_runs():
    (made,) = problem.posted(programs.as_posted, {"not pinned": {}}, pairs=[2])
    assert 1e-6 < made.seconds[0] < 1
