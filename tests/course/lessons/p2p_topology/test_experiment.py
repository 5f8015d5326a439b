"""Lesson 04's experiment on shaped links, and from the recording where there are none."""

import pytest

from course import runs
from course.lessons.p2p_topology import experiment
from labkit.measure.records import Tier
from tests.fabric.test_fabric import needs_hosts

pytestmark = pytest.mark.slow


@pytest.fixture
def no_hosts(monkeypatch):
    monkeypatch.setenv("LABKIT_NO_FABRIC", "1")
    experiment.once.cache_clear()


@pytest.mark.timed
@needs_hosts
def test_three_copies_take_times_as_their_links_say():
    for _ in range(3):
        copies = experiment.time_copies(iters=1)
        first, far, middle = (record.summary.median for record in copies)
        if 0.9 < middle / first / 2 < 1.1 and 0.9 < far / first / 12.4 < 1.1:
            return
    pytest.fail(f"1 : {middle / first:.2f} : {far / first:.2f} instead of 1 : 2 : 12.4")


@pytest.mark.timed
@needs_hosts
def test_links_are_shared_as_the_model_says():
    for _ in range(3):
        together = experiment.time_at_once(iters=2)
        ratios = [min(record.seconds) / record.predicted for record in together]
        if all(0.75 < ratio < 1.25 for ratio in ratios):
            return
    pytest.fail(f"measured over model: {ratios}")


def test_without_hosts_the_recording_is_shown_and_called_so(no_hosts, capsys):
    copies = experiment.time_copies()
    assert {record.tier for record in copies} == {Tier.RECORDED}
    assert [record.case for record in copies] == ["0 -> 1", "0 -> 2", "0 -> 4"]
    assert "LABKIT_NO_FABRIC" in capsys.readouterr().out
    experiment.time_at_once()
    assert capsys.readouterr().out == ""  # said once


def test_a_case_that_was_never_recorded_is_the_model_s_and_says_so(no_hosts):
    record = experiment.time_way([0, 3, 2], 77_000)
    assert record.tier is Tier.MODELLED
    assert record.summary.median == record.predicted


def test_under_torchrun_the_recording_is_shown(monkeypatch):
    monkeypatch.setattr(experiment.torchrun, "is_here", lambda: True)
    printed = []
    copies = experiment.time_copies(say=printed.append)
    assert {record.tier for record in copies} == {Tier.RECORDED}
    assert "torchrun" in printed[0]


def test_the_whole_experiment_runs_without_links(no_hosts):
    records = experiment.run(progress=lambda text: None)
    assert {record.tier for record in records} <= {Tier.RECORDED, Tier.MODELLED}


def test_the_recording_holds_what_the_lesson_says_of_it(no_hosts):
    direct = experiment.time_copies()[1].summary.median
    one, _, two = (experiment.time_ways(ways) for ways in experiment.RELAYED)
    assert one.tier is two.tier is Tier.RECORDED
    assert direct / one.summary.median > 5
    assert direct / two.summary.median > 9
    sweep = [experiment.time_ways(experiment.RELAYED[0], chunk=c) for c in (125_000, 32_000, 8_000)]
    assert len({record.tier for record in sweep}) == 1
    times = [record.summary.median for record in sweep]
    assert max(times) < 1.06 * min(times)  # "8 to 125 kB, all within 5 %"


def test_alpha_is_what_a_chunk_costs_beyond_its_bytes(no_hosts):
    one, thousand = (experiment.time_ways([[0, 5]], chunk=8_000_000 // n) for n in (1, 1000))
    assert 2e-6 < experiment.chunk_cost(one, thousand) < 50e-6
    assert runs.by_case([one, thousand])
