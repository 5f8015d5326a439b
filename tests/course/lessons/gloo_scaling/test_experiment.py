"""Lesson 01: where ranks run and what cannot, and every way to sum against gloo's all_reduce."""

import tempfile
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from course.lessons.gloo_scaling import experiment, programs
from labkit import launch
from labkit.measure import sched
from labkit.measure.records import Tier
from labkit.ranks import affinity

pytestmark = pytest.mark.slow

needs_accounts = pytest.mark.skipif(not experiment.can_measure(), reason="no CPU accounts here")


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
    cpus = {r.case: r.values["own"] for r in experiment.compare("B", program, arms, rounds=1)}
    first, second = affinity.cpus()[:2]
    both = [(first + second) / 2]
    assert cpus == {"mine": both, "one": [first], "two": both}


@needs_accounts
def test_only_the_posted_script_has_a_quota(capsys):
    experiment.compare("calls", programs.calls, {"mine": {"pairs": 1, "quota": 1.0}})
    assert "nobody reads 'quota'" in capsys.readouterr().out


@needs_accounts
def test_what_cannot_run_is_left_out_in_a_line_that_says_what_can(capsys):
    arms = {"huge": {"pairs": 8, "cpus": 10**4}, "none": {"pairs": 0}, "good": {"pairs": 1}}
    arms["strange"] = {"pairs": 1, "cpu": 1}
    assert [*experiment.possible(arms)] == ["good"]
    of_cpus, of_pairs, of_names = capsys.readouterr().out.splitlines()
    assert "cpus=10000; 1 to" in of_cpus and "pairs=0; 1 to 16 are possible here" in of_pairs
    assert "nobody reads 'cpu'; an arm may have pairs, cpus, threads" in of_names


def test_two_threads_of_one_core_are_told_apart_from_two_cores(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(affinity, "cpus", lambda: [0, 1, 2, 3])
    for cpu, threads in enumerate(["0,2", "1,3", "0,2", "1,3"]):
        (tmp_path / f"cpu{cpu}/topology").mkdir(parents=True)
        (tmp_path / f"cpu{cpu}/topology/thread_siblings_list").write_text(f"{threads}\n")
    assert programs.cores(tmp_path) == [[0, 2], [1, 3]]
    assert programs.cores(tmp_path / "nowhere") == [[0], [1], [2], [3]]
    monkeypatch.setattr(programs, "cores", lambda: [[0, 1]])
    experiment.possible({"B": {"pairs": 2, "cpus": 2}})
    assert "2 CPUs here are threads of 1 core" in capsys.readouterr().out


def test_without_accounts_the_recorded_runs_stand_in(monkeypatch, capsys):
    monkeypatch.setattr(sched, "available", lambda: False)
    records = experiment.compare("B", programs.calls, experiment.arms("B"))
    records += experiment.posted(programs.as_posted, {"on one CPU": {"cpus": 1}})
    assert {record.tier for record in records} == {Tier.RECORDED}
    assert "a recorded run" in capsys.readouterr().out


@needs_accounts
def test_the_posted_script_is_launched_so_many_times_a_point():
    records = experiment.posted(programs.as_posted, {"not pinned": {}}, pairs=[2, 1], rounds=2)
    assert [record.params["pairs"] for record in records] == [2, 1]
    assert all(len(r.seconds) == 2 and 1e-6 < min(r.seconds) < 1 for r in records)


@needs_accounts
def test_bytes_are_counted_where_they_are_asked_for():
    arms = {"one": {"pairs": 1, "cpus": 1, "calls": 5}}
    for metered in (True, False):
        (record,) = experiment.compare("A", programs.calls, arms, rounds=1, metered=metered)
        assert ("sent" in record.values) is metered
        assert not metered or record.values["sent"][0] > 400  # a call's tensor, and headers


SHAPES = [(10, 10), (1,), (3, 5, 7), (), (129,)]


def compare():
    group = programs.pair_group()
    for way in programs.WAYS.values():
        compare_one(way, group, SHAPES)
    compare_one(programs.SharedMemory(group, (10, 10)), group, [(10, 10)] * 3)
    return dist.get_process_group_ranks(group)


def compare_one(way, group, shapes):
    for turn in range(3):
        torch.manual_seed(1000 * turn + dist.get_rank())
        tensors = [torch.randint(-99, 99, shape).float() for shape in shapes]
        tensors[0] = tensors[0].t()  # not contiguous in memory
        sums = [tensor.clone() for tensor in tensors]
        for tensor in sums:
            dist.all_reduce(tensor, group=group)
        identities = [id(tensor) for tensor in tensors]
        assert way(tensors, group) is None
        assert [id(tensor) for tensor in tensors] == identities
        assert all(map(torch.equal, tensors, sums))


def test_every_tensor_becomes_the_sum_of_consecutive_ranks():
    assert launch(compare, world_size=6) == [[0, 1], [0, 1], [2, 3], [2, 3], [4, 5], [4, 5]]


def test_an_odd_rank_has_no_partner():
    with pytest.raises(ValueError, match="even world_size, got 3"):
        launch(programs.pair_group, world_size=3)


def test_shared_memory_leaves_no_names_behind(tmp_path):
    def program(folder):
        tempfile.tempdir = folder
        way = programs.SharedMemory(programs.pair_group(), (10, 10))
        way([torch.ones(10, 10)], None)  # the first partner has made and removed the names
        return [path.name for path in Path(folder).iterdir()]

    assert launch(program, str(tmp_path), world_size=2)[0] == []
