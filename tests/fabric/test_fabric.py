import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from labkit import launch
from labkit.fabric.fabric import Fabric, FabricUnavailable
from tests.ranks.nodes import ROOT, python, started

pytestmark = pytest.mark.slow


def why_not():
    try:
        with Fabric.star(hosts=2, rate="100mbit"):
            return None
    except FabricUnavailable as error:
        return str(error)


WHY_NOT = why_not()
needs_hosts = pytest.mark.skipif(WHY_NOT is not None, reason=str(WHY_NOT))


@needs_hosts
def test_nothing_is_left_after_sigkill_of_the_maker():
    script = """
        import time
        from labkit import Fabric
        with Fabric.star(hosts=3, rate='100mbit') as fabric:
            print(fabric.placement(0, 3).namespaces[-1], flush=True)
            time.sleep(60)
    """
    with started(script) as maker:
        holder = Path(maker.stdout.readline().strip()).parents[1]
        assert holder.is_dir()
        maker.kill()
    deadline = time.monotonic() + 5
    while holder.is_dir():  # and with it the only reference to the hosts
        assert time.monotonic() < deadline
        time.sleep(0.02)


@needs_hosts
def test_ranks_see_their_host_alone_and_leaving_the_block_leaves_another_as_it_was():
    def program():
        return sorted(path.name for path in Path("/proc/self/net/dev_snmp6").glob("*")), os.getuid()

    before = set(Path("/sys/class/net").iterdir())
    with Fabric.star(hosts=2, rate="100mbit") as other:
        with Fabric.star(hosts=2, rate="100mbit") as fabric:
            hosts = [Path(fabric.placement(rank, 2).namespaces[-1]) for rank in range(2)]
            assert set(Path("/sys/class/net").iterdir()) == before, "the machine's own interfaces"
        assert not any(map(os.path.lexists, hosts)), "the only references to them"
        for interfaces, user in launch(program, world_size=2, fabric=other):
            assert {"lo", "eth0"} <= set(interfaces) <= {"lo", "eth0", "ifb0", "ifb1"}
            assert user == os.getuid()
    with pytest.raises(RuntimeError, match="not up"):
        fabric.placement(0, 2)


def test_payload_is_what_headers_leave_and_a_world_that_does_not_fit_is_refused():
    # A packet of 9000 bytes takes 9014 of the wire and carries 9000 - 20 - 32 = 8948.
    fabric = Fabric.star(hosts=2, rate="100mbit", ranks_per_host=2)
    with pytest.raises(ValueError, match="world_size=5 does not fit on 2 hosts"):
        fabric.placement(4, 5)
    assert fabric.payload_rate(0, 1) == pytest.approx(100e6 / 8 * 8948 / 9014)
    assert repr(fabric) == "<Fabric: 2 hosts, ranks on each: 2, links of 100 Mbit/s>"


def test_the_switch_makes_it_unavailable(monkeypatch):
    monkeypatch.setenv("LABKIT_NO_FABRIC", "1")
    with pytest.raises(FabricUnavailable, match="LABKIT_NO_FABRIC"):
        Fabric.star(hosts=2, rate="1gbit").start()


@needs_hosts
def test_a_machine_that_forbids_namespaces_is_explained():
    # In a user namespace of its own the limit can be set to 0 without touching the machine's.
    script = """if True:
        from labkit import Fabric
        for what in ("user", "net"):
            open(f"/proc/sys/user/max_{what}_namespaces", "w").write("0")
        Fabric.star(hosts=2, rate="100mbit").start()
    """
    command = ["unshare", "--user", "--map-root-user", sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True)
    if "Read-only" in done.stderr or "unshare:" in done.stderr:
        pytest.skip("/proc/sys cannot be written here")
    assert "FabricUnavailable" in done.stderr
    assert "number of user namespaces is limited to 0" in done.stderr


@needs_hosts
def test_a_store_of_ones_own_is_reached_at_a_hosts_address():
    def connected(address):
        rank = int(os.environ["RANK"])
        store = dist.TCPStore(address, 29600, is_master=rank == 0)
        store.set(f"{rank}", "there")
        dist.init_process_group("gloo")
        answer = os.environ["MASTER_ADDR"], store.get(f"{1 - rank}").decode()
        dist.barrier()  # the store lives as long as rank 0's program
        return answer

    with Fabric.star(hosts=2, rate="400mbit") as fabric:
        first = fabric.address(0)
        answers = launch(connected, first, world_size=2, fabric=fabric, init=False)
    assert answers == [(first, "there")] * 2


@needs_hosts
def test_hosts_can_have_a_second_interface_for_management():
    def counted_through(interface):
        os.environ["GLOO_SOCKET_IFNAME"] = interface
        dist.all_reduce(torch.ones(50_000), group=dist.new_group())
        rows = map(str.split, Path("/proc/self/net/dev").read_text().splitlines()[2:])
        return {name.strip(":"): int(counts[8]) for name, *counts in rows}

    with Fabric.star(hosts=2, rate="400mbit", management="40mbit") as fabric:
        for sent in launch(counted_through, "eth1", world_size=2, fabric=fabric):
            assert sent["eth1"] > 100_000 > sent["eth0"]  # the end may still queue in the shaper
        for sent in launch(counted_through, "eth0", world_size=2, fabric=fabric):
            assert sent["eth0"] > 100_000


def test_it_is_found_wherever_this_labkit_is(tmp_path):
    shutil.copytree(ROOT / "labkit", tmp_path / "labkit")
    (tmp_path / "labkit" / "fabric" / "namespaces.py").write_text("raise ImportError('this one')")
    script = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); from labkit import Fabric; "
    script += "Fabric.star(hosts=2, rate='10mbit').start()"
    done = python("-c", script, cwd="/")
    assert "the process that makes the hosts died (ImportError: this one)" in done.stderr
