"""Lesson 1's experiment at tiny sizes: its arithmetic by hand, its measurements as relations."""

import pytest
from labkit.lessons.gloo_scaling.gloo_pairs import place, ranks_per_core
from pytest import approx, fixture, mark

from labkit import launch
from labkit.launch import affinity
from labkit.launch.machine import Machine
from labkit.lessons.gloo_scaling import experiment, gloo_ladder, gloo_pairs, pairwise
from labkit.lessons.gloo_scaling.experiment import predict
from labkit.measure import sched
from labkit.measure.records import Provenance, Record, Tier

needs_affinity = mark.skipif(not affinity.available(), reason="this system has no affinity")


@mark.parametrize(
    ("placement", "places"),
    [
        ("free", [[4, 7], [4, 7], [4, 7], [4, 7], [4, 7], [4, 7]]),
        ("one core", [[4], [4], [4], [4], [4], [4]]),
        ("together", [[4], [4], [7], [7], [4], [4]]),
        ("apart", [[4], [7], [4], [7], [4], [7]]),
    ],
)
def test_where_ranks_are_placed(placement, places):
    assert [place(placement, rank, [4, 7]) for rank in range(6)] == places


def test_an_unknown_placement_lists_those_there_are():
    with pytest.raises(ValueError, match="free, one core, together, apart; got 'somewhere'"):
        place("somewhere", 0, [0])


@mark.parametrize("placement", ["one core", "together", "apart"])
@mark.parametrize("pairs", [1, 2, 3, 5])
@mark.parametrize("cores", [1, 2, 3, 4])
def test_ranks_per_core_counts_what_place_does(placement, pairs, cores):
    places = [place(placement, rank, range(cores))[0] for rank in range(2 * pairs)]
    busiest = max(places.count(cpu) for cpu in range(cores))
    assert ranks_per_core(placement, pairs, cores) == busiest


def test_left_free_the_load_is_even_and_a_rank_has_one_core_at_most():
    assert [ranks_per_core("free", pairs, 4) for pairs in (1, 2, 3, 8)] == [1, 1, 1.5, 4]


@fixture(scope="module")
def sweep():
    placements = ["free", "together"] if affinity.available() else ["free"]
    return gloo_pairs.sweep([1, 2], placements, calls=10, blocks=2)


def test_a_sweep_has_a_record_per_placement_and_number_of_pairs(sweep):
    told = [(r.params["placement"], r.params["pairs"], r.world_size) for r in sweep]
    placements = ["free", "together"] if affinity.available() else ["free"]
    assert told == [(placement, p, 2 * p) for placement in placements for p in (1, 2)]
    assert all(len(record.seconds) == 2 for record in sweep)
    assert all(record.tier is Tier.MEASURED for record in sweep)


@mark.timed
@mark.skipif(not sched.available(), reason="the kernel keeps no scheduler statistics")
def test_where_a_calls_time_went_adds_up(sweep):
    for record in sweep:
        values = record.values
        assert values["on_cpu"] > 0
        assert values["switches"] > 1, "a blocking call sleeps at least once"
        assert values["writes"] > 1, "a ring's all_reduce writes to sockets"
        assert any("gloo" in name for name in values["threads"])
        assert values["blocked"] > 0, "it waits for its partner"
        assert values["loop"] < values["on_cpu"], "the loop thread is one of several"


@needs_affinity
def test_partners_pinned_together_leave_the_other_cpus_alone():
    def program():
        values = gloo_pairs.program("together", 5, 1)
        return affinity.cpus(), len(values["samples"])

    cpus = affinity.cpus()
    results = launch(program, world_size=4)
    assert results == [(place("together", rank, cpus), 1) for rank in range(4)]


@mark.parametrize("way", [*pairwise.WAYS, "accumulated", "shared memory"])
def test_every_rung_runs_and_is_checked_first(way):
    results = launch(gloo_ladder.program, way, 3, 2, "free", world_size=2)
    assert [len(samples) for samples in results] == [2, 2]


def test_a_rung_that_sums_wrongly_is_not_timed():
    def program():
        pairwise.WAYS["fused"] = lambda tensors, pair: None
        gloo_ladder.program("fused", 3, 1, "free")

    with pytest.raises(AssertionError, match=r"fused: tensor \d is not"):
        launch(program, world_size=2)


@mark.timed
def test_fusing_beats_one_call_per_tensor():
    def per_tensor(way):
        results = launch(gloo_ladder.program, way, 128, 3, "free", world_size=2)
        return min(map(max, zip(*results, strict=True)))

    assert per_tensor("fused") < per_tensor("blocking") / 3


def made_up(pairs, placement, seconds, on_cpu):
    machine = Machine("a CPU", 2, None, 10**9, (), "Linux", "3.11", "2.13", False)
    provenance = Provenance(machine, "gloo", "2026-01-01", "by hand")
    params = {"part": "sweep", "pairs": pairs, "placement": placement}
    values = {"on_cpu": on_cpu, "waiting": 0.0}
    samples = [[seconds]] * 2 * pairs
    return Record("x", placement, params, samples, Tier.MEASURED, provenance, values=values)


def test_the_law_predicts_from_one_pair():
    records = [made_up(1, "together", 250e-6, 120e-6), made_up(1, "free", 800e-6, 500e-6)]
    assert predict(records, "together", 1) == approx(250e-6), "the latency hides the work"
    assert predict(records, "together", 4) == approx(4 * 120e-6)
    assert predict(records, "together", 3) == approx(4 * 120e-6), "two pairs share a core"
    assert predict(records, "free", 8) == approx(8 * 500e-6)


def test_the_table_has_the_laws_error():
    records = [made_up(1, "together", 250e-6, 120e-6), made_up(4, "together", 600e-6, 150e-6)]
    table = experiment.table(records)
    columns, rows = table.columns, table.rows
    last = dict(zip(columns, rows[1], strict=True))
    assert (last["case"], last["pairs"]) == ("together", 4)
    assert last["us per call"] == approx(600)
    assert last["predicted"] == approx(480)
    assert last["error"] == "-20%"
