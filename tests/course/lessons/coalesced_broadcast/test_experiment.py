import pytest

from course.comm.shapes import resnet50
from course.lessons.coalesced_broadcast import experiment as problem
from course.lessons.coalesced_broadcast import pictures
from course.lessons.coalesced_broadcast.model import Coalescing
from course.lessons.coalesced_broadcast.programs import CASES, ONE_BY_ONE, digests, fit
from course.runs import by_case
from labkit import launch
from labkit.fabric.fabric import SWITCH
from labkit.measure.records import Tier, load
from labkit.show.alt_text import text_of

FIXED = ("1 MB", "10 MB", "25 MB", "250 MB")


def every_digest(width):
    return {name: digests(name, width) for name in CASES}


def test_every_case_gives_every_rank_the_source_state_bit_by_bit():
    ranks = launch(every_digest, 1 / 16, world_size=3, checks=True)
    for name in CASES:
        befores, afters = zip(*(rank[name] for rank in ranks), strict=True)
        assert len(set(befores)) == 3  # they differed
        assert set(afters) == {befores[0]}, name


@pytest.mark.timed
def test_buckets_beat_one_by_one_on_loopback_and_keeping_buffers_saves_page_faults():
    names = [ONE_BY_ONE, "10 MB", "250 MB", "250 MB, buffers kept"]
    for _ in range(3):  # a busy machine can hold up any one of them
        records = by_case(problem.measure("loopback, 2 ranks", names, iters=3))
        if records["10 MB"].summary.median < records[ONE_BY_ONE].summary.median:
            break
    assert records["10 MB"].summary.median < records[ONE_BY_ONE].summary.median
    assert records[ONE_BY_ONE].values["calls"] == 320
    assert records[ONE_BY_ONE].predicted > 0
    faults = {name: records[name].values["faults"] for name in names}
    assert faults["250 MB, buffers kept"] < 0.1 * faults["250 MB"]
    peaks = {name: records[name].values["peak"] for name in names}
    assert peaks[ONE_BY_ONE] == 0
    assert 17_874_944 <= peaks["10 MB"] < 1.5 * 17_874_944
    assert peaks["250 MB"] == pytest.approx(102_441_032, rel=0.01)
    assert all(record.others is not None for record in records.values())
    assert len(text_of(pictures.memory(list(records.values())[1:]))) > 30


def test_the_model_is_calibrated_from_the_slowest_rank():
    part = {key: [0.001] for key in ("small", "large", "many", "few", "fresh", "touched")}
    slow = part | {"small": [0.002], "large": [0.034], "fresh": [0.065]}
    model = fit([part, slow])
    assert model.alpha == 0.002
    assert model.beta == pytest.approx(0.032 / 16e6)
    assert model.fresh == pytest.approx(0.064 / (64 * 2**20))


def test_the_prediction_knows_the_cases():
    model = Coalescing(alpha=1e-3, beta=1e-9, copy=1e-10, fresh=1e-9)
    seconds = {name: problem.predicted_seconds(model, name, 1.0) for name in CASES}
    assert {seconds.pop(name) for name in CASES if CASES[name].torch_own} == {None}
    assert seconds[ONE_BY_ONE] == pytest.approx(320 * 1e-3 + 102_441_032e-9)
    assert min(seconds, key=seconds.get) == "already flat"
    assert seconds["250 MB, buffers kept"] < seconds["250 MB"]


def test_without_hosts_the_recorded_run_is_shown_and_says_so(monkeypatch, capsys):
    monkeypatch.setenv(SWITCH, "1")
    records = problem.measure("2 hosts", [ONE_BY_ONE, "25 MB"])
    assert {r.tier for r in records} == {Tier.RECORDED}
    assert [r.case for r in records] == [problem.PARTS, ONE_BY_ONE, "25 MB"]
    assert "RECORDED" in capsys.readouterr().out
    assert problem.model_of(records).alpha > 0
    assert all(r.predicted > 0 for r in records[1:])


def test_unknown_names_are_refused():
    with pytest.raises(ValueError, match="unknown place 'moon'"):
        problem.measure("moon")
    with pytest.raises(ValueError, match="unknown cases"):
        problem.measure("2 hosts", ["pigeon"])


def test_the_recording_is_whole_and_its_pictures_have_words():
    records = load(problem.RECORDING, recorded=True)
    watched = all(record.others is not None for record in records)
    for place in problem.PLACES:
        found = {record.case for record in records if record.params["place"] == place}
        assert set(CASES) <= found if watched else {ONE_BY_ONE, *FIXED} <= found
    table = problem.table(records)
    columns, rows = table.columns, table.rows
    assert all(len(row) == len(columns) for row in rows)
    assert "model" in text_of(pictures.draw(records))
    here = [r for r in records if r.params["place"] == "loopback, 2 ranks"]
    model = Coalescing(**here[0].values)
    for ax in (
        pictures.puzzle(),
        pictures.tensors(resnet50()),
        pictures.ladder(here),
        pictures.phases(here),
        pictures.optimum(model, resnet50()),
        pictures.start_of_a_job(),
    ):
        assert len(text_of(ax)) > 30


def test_shares_are_read_faster_than_everything_by_one_or_by_all():
    def seconds(**limits):
        ways = pictures.start_up_seconds(1e10, 1e-6, 1e-10, **limits)
        return {name: way(64) for name, way in ways.items()}

    wide = seconds(reader=1e9, storage=1e11)
    assert min(wide, key=wide.get) == "each reads a share, then all_gather"
    assert wide["one reads, then a chain"] > 10 + 1  # one reader, then one link
    narrow = seconds(reader=1e9, storage=1e9)  # a single disk: all but reading everything are alike
    assert narrow["all read everything"] == 640
    assert narrow["each reads a share, then all_gather"] == pytest.approx(
        narrow["one reads, then a chain"], rel=0.1
    )
