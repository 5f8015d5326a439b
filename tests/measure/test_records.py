"""Records: what follows from the samples, what is doubted, what a file keeps."""

import dataclasses
import json
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType

from pytest import approx, fixture, mark, raises

from labkit.measure.records import Provenance, Record, Tier, bus_factor, load, save


@fixture
def record():
    params, here = {"world_size": 4, "shape": [2, 3]}, Provenance.here()
    samples = [[0.1, 0.5, 0.2], [0.4, 0.1, 0.2], [0.1, 0.1, 0.3], [0.1, 0.1, 0.1]]
    more = {"collective": "all_reduce", "nbytes": 800}
    more["values"] = {"on_cpu": 0.25, "threads": ["python", "gloo"]}
    return Record("demo", "a case", params, samples, Tier.MEASURED, here, **more)


def test_time_is_the_slowest_ranks_and_bandwidth_follows_from_the_median(record):
    assert record.world_size == 4 and record.seconds == [0.4, 0.5, 0.3]
    assert record.summary.median == 0.4
    assert record.algbw == approx(800 / 0.4)
    assert record.busbw == approx(800 / 0.4 * 2 * 3 / 4)
    assert dataclasses.replace(record, nbytes=None).algbw is None
    assert dataclasses.replace(record, nbytes=None).busbw is None
    assert dataclasses.replace(record, collective=None).busbw is None


def test_bus_factors_are_those_of_nccl_tests():
    assert bus_factor("all_reduce", 8) == 1.75
    assert {bus_factor(x, 8) for x in ("reduce_scatter", "all_gather", "all_to_all")} == {0.875}
    assert {bus_factor(x, 8) for x in ("broadcast", "reduce", "send")} == {1}
    with raises(ValueError, match="no bus factor for 'allreduce'; there is one for all_re"):
        bus_factor("allreduce", 4)


def test_a_file_keeps_everything(record, tmp_path):
    published = dataclasses.replace(record, tier=Tier.PUBLISHED, collective=None, nbytes=None)
    path = save([record, published], tmp_path / "new" / "folder" / "records.json")
    assert len(path.read_text().splitlines()) == 4, "a record a line"
    assert load(path) == load(str(path)) == [record, published]


def test_a_file_is_its_owners_alone(record, tmp_path):
    assert save([record], tmp_path / "records.json").stat().st_mode & 0o077 == 0


def test_what_was_measured_elsewhere_is_recorded_and_nothing_else_changes(record, tmp_path):
    tiers = list(Tier)
    path = save([dataclasses.replace(record, tier=tier) for tier in tiers], tmp_path / "r.json")
    loaded_tiers = [loaded.tier for loaded in load(path, recorded=True)]
    assert loaded_tiers == [Tier.RECORDED] * 3 + [Tier.MODELLED, Tier.PUBLISHED]
    assert load(path, recorded=True)[0] == dataclasses.replace(record, tier=Tier.RECORDED)


FOREIGN = dict.fromkeys(["not json", "[1, 2]"], "is no file of labkit records")
FOREIGN |= {'{"version": 99, "records": []}': "version 99; this labkit reads 3"}


@mark.parametrize(("text", "says"), FOREIGN.items())
def test_another_kind_of_file_or_version_is_refused(text, says, tmp_path):
    path = tmp_path / "other.json"
    path.write_text(text)
    with raises(ValueError, match=rf"other\.json .*{says}"):
        load(path)


DAMAGES = {"nbytes": "<b>", "params": "x", "values": 3, "case": {}, "predicted": "soon"}
DAMAGES |= {"tier": "GUESSED", "extra": 1, "provenance": {}, "samples": [["inf"]]}
OLD = {"nodes": [{"host": "a"}]}


@mark.parametrize("damage", [*DAMAGES.items(), ("provenance", OLD)], ids=str)
def test_a_damaged_record_is_named(damage, record, tmp_path):
    name, value = damage
    path = save([record], tmp_path / "r.json")
    document = json.loads(path.read_text())
    written = document["records"][0]
    written[name] = written[name] | value if value == OLD else value
    path.write_text(json.dumps(document))
    with raises(ValueError, match=r"r\.json is no file of labkit records: records\[0\]"):
        load(path)


def test_a_record_that_cannot_be_written_leaves_the_old_file_and_no_other(record, tmp_path):
    path = save([record], tmp_path / "r.json")
    with raises(TypeError):
        save([dataclasses.replace(record, values={"bad": object()})], path)
    assert load(path) == [record]
    assert list(tmp_path.iterdir()) == [path]


def test_provenance_says_where_when_and_how(monkeypatch):
    monkeypatch.setitem(sys.modules, "__main__", main := ModuleType("__main__"))
    monkeypatch.setattr("sys.argv", ["/long/way/train.py", "run", "two words"])
    provenance = Provenance.here("nccl")
    assert provenance.command == "train.py run 'two words'" and provenance.date.endswith("+00:00")
    for module in ("course.__main__", "package.module"):
        main.__spec__ = ModuleSpec(module, None)
        monkeypatch.setattr("sys.argv", ["/a/course/__main__.py", "run", "gloo-scaling"])
        name = module.removesuffix(".__main__")
        assert Provenance.here().command == f"python -m {name} run gloo-scaling"
    monkeypatch.setattr("sys.argv", ["/a/ipykernel_launcher.py", "-f", "x.json"])
    assert Provenance.here().command == "a notebook"
    carrier = f"nccl {provenance.nccl}".rstrip()  # a build for CPUs has none
    assert f"torch {provenance.machine.torch}, {carrier}, {provenance.date[:10]}" in str(provenance)
    for backend in ("gloo", "nccl"):
        machine = dataclasses.replace(provenance.machine, cpu_model="a CPU", gpus=("H100", "H100"))
        text = str(dataclasses.replace(provenance, machine=machine, backend=backend))
        assert text.startswith(f"a CPU, {machine.cores:g} CPUs, 2 x H100, torch ")
