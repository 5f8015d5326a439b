"""Lesson 04's experiment on shaped links, and from the recording where there are none."""

import pytest

from course.lessons.p2p_topology import experiment, programs
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
        copies = experiment.time_copies(rounds=1)
        first, far, middle = (record.summary.median for record in copies)
        if 0.9 < middle / first / 2 < 1.1 and 0.9 < far / first / 12.4 < 1.1:
            return
    pytest.fail(f"1 : {middle / first:.2f} : {far / first:.2f} instead of 1 : 2 : 12.4")


@pytest.mark.timed
@needs_hosts
def test_links_are_shared_as_the_model_says():
    for _ in range(3):
        together = experiment.time_at_once(rounds=2)
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
    records = experiment.run(progress=lambda text: None)
    assert {record.tier for record in records} <= {Tier.RECORDED, Tier.MODELLED}


def test_a_case_that_was_never_recorded_is_the_model_s_and_says_so(no_hosts):
    arm = {"way": [0, 3, 2], "chunk": 76_000}
    record = experiment.compare(programs.pass_on, {"mine": arm})["mine"]
    assert record.tier is Tier.MODELLED
    assert record.summary.median == record.predicted


def recorded(program, arms):
    records = list(experiment.compare(program, arms).values())
    assert {record.tier for record in records} == {Tier.RECORDED}
    return records


def test_the_recording_holds_what_the_lesson_says_of_it(no_hosts):
    ways = recorded(programs.carry, experiment.all_ways())
    direct, one, two, _ = (record.summary.median for record in ways)
    assert direct / one > 5
    assert direct / two > 9
    recorded(programs.pass_on, experiment.RELAYS)
    sweep = {size: {"ways": experiment.SWEPT, "chunk": size} for size in (125_000, 32_000, 8_000)}
    times = [record.summary.median for record in recorded(programs.carry, sweep)]
    assert max(times) < 1.07 * min(times)  # "8 to 125 kB were all within 6 %"
    costs = recorded(programs.carry, experiment.COSTS)
    assert 2e-6 < experiment.chunk_cost(*costs) < 100e-6  # what a chunk costs beyond its bytes
