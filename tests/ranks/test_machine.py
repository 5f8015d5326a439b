"""What this machine is; the control group's limit, from files made for the purpose."""

import dataclasses

from pytest import mark

from labkit import launch
from labkit.ranks import affinity
from labkit.ranks.machine import Machine, cpu_quota


def cgroup(root, files, own="0::/\n"):
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    (root / "own").write_text(own)
    return cpu_quota(root, root / "own")


LIMITS = {"150000 100000\n": 1.5, "max 100000\n": None, "400000 200000": 2.0, "junk": None}


@mark.parametrize(("text", "limit"), LIMITS.items())
def test_a_limit_of_cgroup_v2(tmp_path, text, limit):
    assert cgroup(tmp_path, {"cpu.max": text}) == limit


def test_the_tightest_group_around_the_process_counts(tmp_path):
    files = {"user/cpu.max": "200000 100000", "user/me/cpu.max": "max 100000", "cpu.max": "max 9"}
    assert cgroup(tmp_path, files, own="0::/user/me\n") == 2.0
    files |= {"user/me/cpu.max": "70000 100000"}
    assert cgroup(tmp_path, files, own="0::/user/me\n") == 0.7
    assert cgroup(tmp_path, files, own="0::/somebody/else\n") is None
    assert cpu_quota(tmp_path / "absent", tmp_path / "absent") is None, "no control groups"


def test_cores_are_the_quota_if_it_is_lower():
    here = dataclasses.replace(Machine.here(), cpus=8, cpu_quota=None)
    assert here.cores == 8
    assert dataclasses.replace(here, cpu_quota=1.5).cores == 1.5
    assert dataclasses.replace(here, cpu_quota=16.0).cores == 8


@mark.skipif(not affinity.available(), reason="this system has no affinity")
def test_usable_cpus_are_those_of_the_affinity_mask():
    def program():
        affinity.pin(affinity.cpus()[:1])
        return Machine.here().cpus

    assert launch(program, world_size=1) == [1]
