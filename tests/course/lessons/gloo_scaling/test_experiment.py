"""Lesson 1's experiment at tiny sizes: its arithmetic by hand, its measurements as relations."""

import os
from pathlib import Path
from types import SimpleNamespace

import pytest
from pytest import approx, fixture, mark

from course.lessons.gloo_scaling import experiment, model, pictures, programs, published
from course.lessons.gloo_scaling.programs import place
from labkit import launch
from labkit.measure import sched
from labkit.measure.records import Provenance, Record, Tier
from labkit.ranks import affinity
from labkit.ranks.machine import Machine
from labkit.show import alt_text

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
    with pytest.raises(ValueError, match="one core, free, together, apart; got 'somewhere'"):
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
    launches = [experiment.ALONE if p == 1 else 1 for _, p, _ in told]
    assert [len(record.seconds) for record in sweep] == [2 * times for times in launches]
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


def test_every_rung_runs_and_is_checked_first():
    def program():
        return [len(programs.sums(way, 3, 2)) for way in (*programs.WAYS, "shared memory")]

    assert launch(program, world_size=2) == [[2] * 6] * 2


def test_a_rung_that_sums_wrongly_is_not_timed():
    def program():
        programs.WAYS["fused"] = lambda tensors, pair: None
        programs.sums("fused", 3, 1)

    with pytest.raises(AssertionError, match=r"fused: tensor \d is not"):
        launch(program, world_size=2)


@mark.timed
def test_fusing_beats_one_call_per_tensor():
    def per_tensor(way):
        results = launch(programs.sums, way, 128, 3, world_size=2)
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
    assert last["µs per call"] == approx(600)
    assert last["predicted"] == approx(480)
    assert last["error"] == "-20%"


def test_saturation_is_flat_up_to_the_knee_and_then_grows_with_every_rank():
    law = model.Saturation(latency=300e-6, cpu_per_call=100e-6, cores=4)
    assert law.knee == approx(12)
    assert law.curve([2, 12]) == approx([300e-6, 300e-6])
    assert law.curve([13, 24, 48]) == approx([325e-6, 600e-6, 1200e-6])
    assert law.curve(range(2, 5)) == [law.time(ranks) for ranks in (2, 3, 4)]


@needs_affinity
@mark.timed
def test_the_cause_is_looked_for_under_three_conditions():
    found = experiment.cause(calls=5, blocks=2)
    assert [record.case for record in found] == list(experiment.CAUSES)
    assert {record.params["placement"] for record in found} == {"apart"}
    assert all(record.values["loop"] > 0 for record in found)


@needs_affinity
def test_cpus_are_kept_awake_by_loops_that_give_way_and_end(monkeypatch):
    import subprocess

    started, real = [], subprocess.Popen
    monkeypatch.setattr(
        experiment.subprocess, "Popen", lambda *a: (started.append(real(*a)), started[-1])[1]
    )
    with experiment.kept_awake():
        where = [os.sched_getaffinity(process.pid) for process in started]
        how = {os.sched_getscheduler(process.pid) for process in started}
    assert where == [{cpu} for cpu in affinity.cpus()]
    assert how == {os.SCHED_IDLE}
    assert all(process.poll() is not None for process in started), "all have ended"


def test_sched_batch_is_a_rung_and_reaches_every_thread():
    def program():
        programs.sums("blocking", 2, 1, "free", True)
        tasks = Path("/proc/self/task")
        return {os.sched_getscheduler(int(task.name)) for task in tasks.iterdir()}

    if hasattr(os, "SCHED_BATCH"):
        assert launch(program, world_size=2) == [{os.SCHED_BATCH}] * 2
        (rung,) = experiment.ladder(1, [("blocking", "SCHED_BATCH")], count=8, iters=1)
        assert rung.case == "blocking, SCHED_BATCH"


def test_the_threads_figures_are_the_threads():
    quoted = {pairs: figure.quotation for pairs, figure in published.SECONDS.items()}
    assert list(quoted) == [1, 2, 3, 4, 5, 6, 7, 8]
    for pairs, figure in published.SECONDS.items():
        assert quoted[pairs].startswith(f"p = {pairs};")
        assert quoted[pairs].endswith(f"{figure.value:.6f}")
        assert experiment.PER_CALL[pairs] == figure.value / 1024
        assert figure.source is published.THREAD


def test_pictures_say_what_they_show():
    records = [made_up(p, "one core", 240e-6 * p, 120e-6) for p in (1, 2, 8)]
    ax = pictures.growth(model.with_predictions(records), law=True, beside_published=True)
    assert "one core: 240 to 1920 µs" in alt_text.text_of(ax)
    (stamp,) = alt_text.of(ax).stamps.values()
    assert "MEASURED + MODELLED" in stamp and "discuss.pytorch.org" in stamp
    (stamp,) = alt_text.of(pictures.thread()).stamps.values()
    assert stamp.startswith("PUBLISHED") and "discuss.pytorch.org" in stamp
    assert "gloo_tcp_loop" in alt_text.text_of(pictures.path())


def test_the_loop_thread_is_found_with_and_without_a_name():
    def threads(*names):
        return [SimpleNamespace(name=name, on_cpu=cpu) for cpu, name in enumerate(names)]

    loops = programs._loop_threads
    assert loops(threads("python", "gloo_tcp_loop", "gloo_tcp_loop", "pt_gloo_runloop")) == 3
    assert loops(threads("python", "python", "python")) == 2
    assert loops([]) == 0
