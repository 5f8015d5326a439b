"""Lesson 04's programs, its experiment on shaped links, and the recording where there are none."""

import pytest
import torch
import torch.distributed as dist

from course.lessons.p2p_topology import experiment, programs
from labkit import launch
from labkit.measure.records import Tier
from tests.fabric.test_fabric import needs_hosts

pytestmark = pytest.mark.slow


@pytest.fixture
def no_hosts(monkeypatch):
    monkeypatch.setenv("LABKIT_NO_FABRIC", "1")
    experiment.once.cache_clear()


@pytest.mark.timed
@needs_hosts
def test_three_copies_take_times_as_their_links_say(monkeypatch):
    thrice = 3 * experiment.NBYTES  # links decide, not CPUs
    monkeypatch.setattr(experiment, "NBYTES", thrice)
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
    direct, one_relay, two_relays, _ = (record.summary.median for record in ways)
    assert direct / one_relay > 5
    assert direct / two_relays > 9
    recorded(programs.pass_on, experiment.RELAYS)
    sweep = {size: {"ways": experiment.SWEPT, "chunk": size} for size in (125_000, 32_000, 8_000)}
    times = [record.summary.median for record in recorded(programs.carry, sweep)]
    assert max(times) < 1.07 * min(times)  # "8 to 125 kB were all within 6 %"
    costs = recorded(programs.carry, experiment.COSTS)
    assert 2e-6 < experiment.chunk_cost(*costs) < 100e-6  # what a chunk costs beyond its bytes


CASES = [
    (1, [[0, 1]], None, 1),
    (7, [[0, 2, 1]], None, 2),
    (1000, [[0, 1, 3], [0, 2, 3]], None, 64),
    (1000, [[0, 1, 3], [0, 2, 3], [0, 3]], [5, 3, 1], 100),
    (100, [[0, 1, 2, 3], [0, 2, 3], [0, 1, 3]], [1, 1, 1], 7),
    (5, [[0, 1, 3], [0, 2, 3], [0, 3]], [100, 1, 1], 9),
]
"""Length, ways, shares, chunk."""


def moved():
    """Carry rank 0's numbers along the ways of each case, at last through two slots."""
    held = [torch.arange(length) + 1000.0 * dist.get_rank() for length, *_ in [*CASES, [12]]]
    for tensor, (_, ways, shares, chunk) in zip(held, CASES, strict=False):
        programs.carry(tensor, ways, chunk=4 * chunk, shares=shares)
    programs.pass_on(held[-1], [0, 2, 1, 3], chunk=20, slots=2)  # 5, 5 and 2 elements
    return held


def test_the_last_rank_gets_what_the_first_has():
    *cases, slotted = zip(*launch(moved, world_size=4), strict=True)
    for (length, ways, *_), held in zip(CASES, cases, strict=True):
        numbers, on_the_way = torch.arange(length), {rank for way in ways for rank in way}
        for end in (ways[0][0], ways[0][-1]):
            assert torch.equal(held[end], numbers + 0.0)
        for rank in set(range(4)) - on_the_way:
            assert torch.equal(held[rank], numbers + 1000.0 * rank)
    starts = [0.0, 1000.0, 2000.0, 0.0]  # two slots leave the relays' tensors alone
    assert all(torch.equal(x, torch.arange(12) + s) for x, s in zip(slotted, starts, strict=True))


def test_parts_are_in_proportion_and_complete():
    parts = programs.split(torch.arange(10), [3, 1, 1])
    assert [len(part) for part in parts] == [6, 2, 2]
    assert torch.equal(torch.cat(parts), torch.arange(10))
