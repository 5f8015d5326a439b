"""What this machine is; the control group's limit, from files made for the purpose."""

import dataclasses
import os
import subprocess
import sys
import time

from pytest import mark, skip

from labkit.ranks import affinity
from labkit.ranks.machine import Machine, cpu_quota, gpu_count, runnable, usable_cpus


def cgroup(root, files, own="0::/\n"):
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    (root / "own").write_text(own)
    return cpu_quota(root, root / "own")


@mark.parametrize(
    ("text", "limit"),
    [("150000 100000\n", 1.5), ("max 100000\n", None), ("400000 200000", 2.0), ("junk", None)],
)
def test_a_limit_of_cgroup_v2(tmp_path, text, limit):
    assert cgroup(tmp_path, {"cpu.max": text}) == limit


@mark.parametrize(("quota", "limit"), [("50000\n", 0.5), ("-1\n", None), ("300000", 3.0)])
def test_a_limit_of_cgroup_v1(tmp_path, quota, limit):
    files = {"cpu/cpu.cfs_quota_us": quota, "cpu/cpu.cfs_period_us": "100000\n"}
    assert cgroup(tmp_path, files, own="3:memory:/x\n1:cpu,cpuacct:/\n") == limit


def test_the_tightest_group_around_the_process_counts(tmp_path):
    files = {"user/cpu.max": "200000 100000", "user/me/cpu.max": "max 100000", "cpu.max": "max 9"}
    assert cgroup(tmp_path, files, own="0::/user/me\n") == 2.0
    files |= {"user/me/cpu.max": "70000 100000"}
    assert cgroup(tmp_path, files, own="0::/user/me\n") == 0.7
    assert cgroup(tmp_path, files, own="0::/somebody/else\n") is None


def test_the_groups_of_v1_are_found_by_their_controller(tmp_path):
    files = {
        "cpu/box/cpu.cfs_quota_us": "250000",
        "cpu/box/cpu.cfs_period_us": "100000",
        "memory/box/cpu.cfs_quota_us": "1",
        "memory/box/cpu.cfs_period_us": "100000",
    }
    own = "4:memory:/box\n2:cpuset:/box\n1:cpu,cpuacct:/box\n0::/box\n"
    assert cgroup(tmp_path, files, own) == 2.5


def test_no_control_groups_no_limit(tmp_path):
    assert cpu_quota(tmp_path / "absent", tmp_path / "absent") is None


def test_cores_are_the_quota_if_it_is_lower():
    here = dataclasses.replace(Machine.here(), cpus=8, cpu_quota=None)
    assert here.cores == 8
    assert dataclasses.replace(here, cpu_quota=1.5).cores == 1.5
    assert dataclasses.replace(here, cpu_quota=16.0).cores == 8


def test_it_describes_this_machine():
    here = Machine.here()
    assert here.cpus == usable_cpus() >= 1
    assert here.memory > 1e8
    assert here.python == sys.version.split()[0]
    assert here.torch[0].isdigit()
    assert len(here.gpus) == gpu_count()
    assert here == Machine.here(), "a value"
    assert hash(here) == hash(Machine.here())


def test_usable_cpus_are_those_of_the_affinity_mask():
    if not affinity.available():
        skip("this system has no affinity")
    first = affinity.cpus()[0]
    script = f"""
import os
os.sched_setaffinity(0, [{first}])
from labkit.ranks.machine import Machine
print(Machine.here().cpus)
"""
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert run.stdout == "1\n", run.stderr


def test_asking_for_gpus_does_not_cost_torch_where_there_are_none():
    if os.path.exists("/dev/nvidiactl") or os.path.exists("/dev/kfd"):  # noqa: PTH110
        skip("this machine has GPUs")
    script = """
import sys
from labkit.ranks.machine import Machine
Machine.here()
print("torch" in sys.modules)
"""
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert run.stdout == "False\n", run.stderr


@mark.skipif(sys.platform != "linux", reason="Linux tells in /proc")
def test_threads_that_want_a_cpu_are_counted_and_those_that_sleep_are_not():
    programs = ("while True: pass", "import time; time.sleep(60)")
    busy, idle = (subprocess.Popen([sys.executable, "-c", program]) for program in programs)
    try:
        time.sleep(0.5)
        assert runnable([busy.pid]) == 1
        assert runnable([idle.pid]) == 0
        assert runnable() >= 1
    finally:
        for process in (busy, idle):
            process.kill()
            process.wait()
    assert runnable([busy.pid]) == 0, "it is gone"
