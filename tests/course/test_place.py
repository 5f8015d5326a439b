import re
from dataclasses import replace
from types import SimpleNamespace

import torch
import torch.distributed as dist
from pytest import fixture, mark, raises, skip

from course import catalogue
from course.notebooks import tree
from course.place import Place, on_gpus
from labkit.fabric.errors import FabricUnavailable
from labkit.fabric.fabric import Fabric
from labkit.measure import records, timing
from labkit.measure.records import Tier
from tests.ranks.nodes import ROOT

NAME = "places"


def add_up(numel):
    tensor = torch.ones(numel)
    return timing.time_calls(lambda: dist.all_reduce(tensor), warmup=0, iters=2)


def measure(here):
    return [here.record("one", here.launch(add_up, 8), experiment=NAME, params={"way": 1})]


def made_at(place, case="one"):
    return place.record(case, [[0.1]] * place.world_size, experiment=NAME)


@fixture(autouse=True)
def recording(monkeypatch):
    """What two places measured, recorded as of a lesson: two hosts, and three on loopback."""
    places = (Place(2, "1gbit"), Place(3))
    measured = [made_at(place, case) for place in places for case in ("one", "other")]
    kept = [replace(record, tier=Tier.RECORDED) for record in measured]
    lesson = SimpleNamespace(recorded=lambda: kept)
    monkeypatch.setattr(catalogue, "experiment", {NAME: lesson}.__getitem__)


def test_loopback_is_measured():
    place = Place(hosts=1, ranks_per_host=3)
    (record,) = place.records(measure, experiment=NAME)
    assert (record.tier, record.world_size) == (Tier.MEASURED, 3)
    assert record.params == {"hosts": 1, "rate": "loopback", "way": 1}
    assert record.provenance.backend == "gloo"
    assert place.has(record) and not Place(3).has(record) and not Place(2).has(record)


@mark.slow
@mark.parametrize("fabric", [None, Fabric.rails(servers=1, cards=2, rate="1gbit", inside="1gbit")])
def test_links_are_emulated(fabric):
    place = Place(2, "1gbit", fabric=fabric)
    try:
        with place.up():
            pass
    except FabricUnavailable as reason:
        skip(str(reason))
    (record,) = place.records(measure, experiment=NAME)
    assert (record.tier, record.world_size) == (Tier.EMULATED, 2)


def test_without_links_what_was_recorded_of_the_place_is_shown(monkeypatch, capsys):
    monkeypatch.setenv("LABKIT_NO_FABRIC", "test")
    shown = Place(2, "1gbit").records(measure, experiment=NAME, cases=["other", "third"])
    assert [(r.case, r.tier, r.world_size) for r in shown] == [("other", Tier.RECORDED, 2)]
    assert "Shown instead" in capsys.readouterr().out
    for another in (Place(3, "1gbit"), Place(2, "1gbit", ranks_per_host=2)):
        with raises(LookupError, match="nothing of Place"):
            another.records(measure, experiment=NAME)


def test_nobody_in_the_course_takes_the_kits_launch_but_where_gpus_are_meant():
    takes = re.compile(r"from labkit import .*\blaunch\b|ranks.launcher import launch")
    sources = [*(ROOT / "course").rglob("*.py"), *tree.kept(ROOT)]
    takers = {path.name for path in sources if takes.search(path.read_text())}
    assert takers == {"runs.py", "gpus.ipynb"}


def test_gpus_have_a_rank_each_and_nccl(monkeypatch):
    monkeypatch.setattr("labkit.ranks.machine.gpu_count", lambda: 8)
    monkeypatch.setattr("labkit.ranks.machine._gpu_names", lambda: 8 * ("H100",))
    place = Place.gpus()
    assert (place.world_size, place.link, place.tier) == (8, "GPUs", Tier.MEASURED)
    launched = {}
    monkeypatch.setattr("course.place.launch", lambda program, **options: launched.update(options))
    with place.up() as here:
        here.launch(add_up)
        record = made_at(here)
    assert (launched["world_size"], launched["backend"]) == (8, "nccl")
    assert record.provenance.backend == "nccl"


def test_the_same_measurement_runs_on_gpus_or_says_what_it_takes(monkeypatch, tmp_path, capsys):
    measured = [made_at(replace(Place.gpus(), ranks_per_host=2))]
    assert on_gpus(lambda here: measured, needs=2) == []
    kept = records.save([*measured, made_at(Place(2))], tmp_path / "recording.json")
    (shown,) = on_gpus(lambda here: measured, needs=2, recording=kept, experiment=NAME)
    assert (shown.tier, shown.provenance.backend) == (Tier.RECORDED, "nccl")
    ends = "Nobody has recorded it yet.", "Shown instead: a recorded run."
    said = [f"This takes 2 GPUs; this machine has none. {end}" for end in ends]
    assert capsys.readouterr().out.splitlines() == said
    monkeypatch.setattr("labkit.ranks.machine.gpu_count", lambda: 2)
    (record,) = on_gpus(lambda here: measured, needs=2)
    assert record.tier == Tier.MEASURED


def test_under_torchrun_the_ranks_are_those_that_are_there(monkeypatch):
    monkeypatch.setattr("labkit.ranks.torchrun.is_here", lambda: True)
    monkeypatch.setattr("labkit.ranks.torchrun.nodes", lambda: ((0, 1, 2), (3, 4, 5)))
    monkeypatch.setenv("WORLD_SIZE", "6")
    place = Place(4, "1gbit")
    assert (place.world_size, place.link, place.tier) == (6, "torchrun", Tier.MEASURED)
    with place.up() as here:
        assert here.fabric is None
        record = made_at(here)
    assert record.params == {"hosts": 2, "rate": "torchrun"}
