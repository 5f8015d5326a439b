"""Lesson 1's experiment at tiny sizes: its arithmetic by hand, its measurements as relations."""

import pytest
from pytest import approx, fixture, mark

from labkit import launch
from labkit.launch import affinity
from labkit.launch.machine import Machine
from labkit.lessons.gloo_scaling import experiment, model, programs
from labkit.lessons.gloo_scaling.programs import place
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
    assert model.ranks_per_core(placement, pairs, cores) == busiest


def test_left_free_the_load_is_even_and_a_rank_has_one_core_at_most():
    assert [model.ranks_per_core("free", pairs, 4) for pairs in (1, 2, 3, 8)] == [1, 1, 1.5, 4]


@fixture(scope="module")
def sweep():
    placements = ["free", "together"] if affinity.available() else ["free"]
    return experiment.sweep([1, 2], placements, calls=10, blocks=2)


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
        values = programs.repeated_calls("together", 5, 1)
        return affinity.cpus(), len(values["samples"])

    cpus = affinity.cpus()
    results = launch(program, world_size=4)
    assert results == [(place("together", rank, cpus), 1) for rank in range(4)]


@mark.parametrize("way", [*programs.WAYS, "shared memory"])
def test_every_rung_runs_and_is_checked_first(way):
    results = launch(programs.sums, way, 3, 2, "free", world_size=2)
    assert [len(samples) for samples in results] == [2, 2]


def test_a_rung_that_sums_wrongly_is_not_timed():
    def program():
        programs.WAYS["fused"] = lambda tensors, pair: None
        programs.sums("fused", 3, 1, "free")

    with pytest.raises(AssertionError, match=r"fused: tensor \d is not"):
        launch(program, world_size=2)


@mark.timed
def test_fusing_beats_one_call_per_tensor():
    def per_tensor(way):
        results = launch(programs.sums, way, 128, 3, "free", world_size=2)
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
    records = [
        made_up(1, "together", 250e-6, 120e-6),
        made_up(2, "together", 250e-6, 110e-6),
        made_up(3, "together", 500e-6, 110e-6),
        made_up(4, "together", 500e-6, 110e-6),
        made_up(8, "free", 800e-6, 150e-6),
        made_up(1, "free", 800e-6, 500e-6),
    ]
    predicted = [record.predicted for record in model.with_predictions(records)]
    assert predicted[1] == approx(250e-6), "the latency hides the work"
    assert predicted[2] == approx(4 * 120e-6), "two pairs share a core"
    assert predicted[3] == approx(4 * 120e-6)
    assert predicted[4] == approx(8 * 500e-6)
    assert predicted[0] is predicted[5] is None, "there is nothing to predict at p = 1"


def test_the_table_has_the_laws_error():
    records = [made_up(1, "together", 250e-6, 120e-6), made_up(4, "together", 600e-6, 150e-6)]
    table = experiment.table(model.with_predictions(records))
    columns, rows = table.columns, table.rows
    last = dict(zip(columns, rows[1], strict=True))
    assert (last["case"], last["pairs"]) == ("together", 4)
    assert last["us per call"] == approx(600)
    assert last["predicted"] == approx(480)
    assert last["error"] == "-20%"


def test_saturation_is_flat_up_to_the_knee_and_then_grows_with_every_rank():
    law = model.Saturation(latency=300e-6, cpu_per_call=100e-6, cores=4)
    assert law.knee == approx(12)
    assert law.curve([2, 12]) == approx([300e-6, 300e-6])
    assert law.curve([13, 24, 48]) == approx([325e-6, 600e-6, 1200e-6])
    assert law.curve(range(2, 5)) == [law.time(ranks) for ranks in (2, 3, 4)]


@mark.timed
def test_overlap_has_all_four_steps_and_says_what_stays_exposed():
    records = {r.case: r for r in experiment.overlap(count=4, iters=3)}
    assert [len(record.seconds) for record in records.values()] == [3] * 4
    compute, sums = records["compute alone"], records["sums alone"]
    in_turn, overlapped = records["one after the other"], records["overlapped"]
    assert all(record.tier is Tier.MEASURED for record in records.values())
    for record in (in_turn, overlapped):
        exposed = max(0, record.summary.median - compute.summary.median)
        assert record.values["exposed"] == approx(exposed)
        assert record.values["hidden"] == approx(max(0, 1 - exposed / sums.summary.median))
    assert in_turn.summary.median > min(sums.seconds)


def test_ddp_makes_one_call_of_many_and_belongs_to_the_ladder():
    plain, hooked = experiment.ladder(1, experiment.AS_GRADIENTS, count=64, iters=1)
    assert [plain.case, hooked.case] == ["DDP", "DDP, fp16 hook"]
    for record in (plain, hooked):
        assert record.params["part"] == "ladder"
        assert record.params["way"] == record.case
        assert (record.world_size, len(record.seconds)) == (2, 4)


@fixture(scope="module")
def connections():
    return {record.case: record for record in experiment.connections(6, iters=3)}


def test_an_eager_group_connects_to_everybody_a_lazy_one_to_nobody(connections):
    eager, lazy = connections["eager"].values, connections["lazy"].values
    assert eager["descriptors"] - lazy["descriptors"] == 5, "a connection per peer, of 6 ranks"
    assert eager["on_first_use"] == 0
    assert lazy["on_first_use"] == 2, "a ring needs its two neighbours only"
    assert eager["threads"] == lazy["threads"] > 0


@mark.timed
def test_connecting_later_makes_groups_cheaper_to_create(connections):
    assert connections["lazy"].summary.median < connections["eager"].summary.median


def test_thread_settings_reach_the_ranks_and_the_parts_make_the_whole(monkeypatch):
    asked = []

    def listening_launch(*args, threads, **options):
        asked.append(threads)
        return launch(*args, threads=threads, **options)

    monkeypatch.setattr(experiment, "launch", listening_launch)
    one, three = experiment.threads([1, 3], calls=4, iters=3)
    assert asked == [1, 3]
    assert [one.params["threads"], three.params["threads"]] == [1, 3]
    assert [one.case, three.case] == ["threads: 1", "threads: 3"]
    for record in (one, three):
        longest = max(record.seconds)
        assert 0 < record.values["matmul"] <= longest
        assert 0 < 4 * record.values["per_call"] <= longest


def test_threads_are_one_and_the_machines_default_unless_told(monkeypatch):
    monkeypatch.setattr(experiment, "usable_cpus", lambda: 2)
    records = experiment.threads(calls=1, iters=1)
    assert [record.params["threads"] for record in records] == [1, 2]
