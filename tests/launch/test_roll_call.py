"""Several nodes: who is missing or differs is named. Two torchrun agents stand for two nodes."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
import threading
import time

import torch.distributed as dist
from pytest import approx, mark, raises

from labkit.fabric.fabric import Fabric, FabricUnavailable
from labkit.fabric.plan import address
from labkit.launch import roll_call
from labkit.launch.errors import LaunchError
from labkit.launch.roll_call import Present
from labkit.measure import records
from tests.fabric.test_fabric import needs_hosts
from tests.launch.nodes import ROOT, environment, free_port


def answers(people):
    """Let everybody answer at once; return what each got or the error that it met."""
    store, results = dist.HashStore(), {}

    def one(me):
        try:
            results[me.rank] = roll_call.call(store, me, world_size=len(people))
        except LaunchError as error:
            results[me.rank] = error

    threads = [threading.Thread(target=one, args=(me,)) for me in people if me is not None]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def test_everybody_hears_everybody():
    people = [Present.here(rank) for rank in range(3)]
    assert answers(people) == dict.fromkeys(range(3), people)


@mark.parametrize("name", ["labkit", "torch", "python", "backend"])
def test_what_differs_is_refused_with_both_named(name):
    mine = Present.here(0)
    other = dataclasses.replace(mine, rank=1, host="node-2", **{name: "0.0.1"})
    for error in answers([mine, other]).values():
        text = str(error)
        assert f"the same {name}" in text and "0.0.1 on ranks [1] (node-2)" in text
        assert getattr(mine, name) in text


def test_a_labkit_that_answers_in_other_words_is_refused_by_its_version():
    mine, store = Present.here(0), dist.HashStore()
    store.set("1", json.dumps({"host": "node-2", "labkit": "9.9", "beat": 3}))
    with raises(LaunchError, match=r"the same labkit: .* 9.9 on ranks \[1\] \(node-2\)"):
        roll_call.call(store, mine, world_size=2)


def test_missing_ranks_are_named_after_the_stated_time(monkeypatch):
    monkeypatch.setenv(roll_call.PATIENCE, "0.5")
    (error,) = answers([Present.here(0), None]).values()
    assert "ranks [1] are missing after 0.5 s" in str(error)


def test_a_node_that_never_comes_is_told():
    program = "from labkit import launch\nlaunch(print)"
    lonely = environment(
        RANK="0",
        WORLD_SIZE="2",
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(free_port()),
        LABKIT_JOIN_TIMEOUT="3",
    )
    start = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", program], env=lonely, capture_output=True, text=True, timeout=60
    )
    assert done.returncode != 0 and time.monotonic() - start < 40
    assert "2 ranks were announced, but not all came" in done.stderr
    assert "after 3 s" in done.stderr


def agent(node, port, *command, place=None, master="127.0.0.1"):
    """Start torchrun as one of two nodes: on this machine, or on a fabric's host (`place`)."""
    network = {"GLOO_SOCKET_IFNAME": place.interface} if place else {}
    return subprocess.Popen(
        [
            sys.executable, "-m", "torch.distributed.run", "--nnodes=2", "--nproc-per-node=1",
            f"--node-rank={node}", f"--master-addr={master}", f"--master-port={port}", *command,
        ],
        env=environment(**network), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True, cwd=ROOT, preexec_fn=place.enter if place else None,
    )  # fmt: skip


def test_two_nodes_run_an_experiment_and_one_writes_its_records(tmp_path):
    port, out = free_port(), tmp_path / "records.json"
    command = ["-m", "labkit", "run", "passport", "--quick", "--out", str(out)]
    nodes = [agent(node, port, *command) for node in range(2)]
    first, second = (node.communicate(timeout=100) for node in nodes)
    assert [node.returncode for node in nodes] == [0, 0], first[1] + second[1]
    assert "ping-pong" in first[0] and str(out) in first[0]
    assert "ping-pong" not in second[0], "rank 0 alone prints"
    assert records.load(out)


@mark.timed
@needs_hosts
def test_two_hosts_of_a_fabric_are_two_nodes(tmp_path):
    """Each agent on a host of its own: the records tell of both, and of the link between them."""
    out = tmp_path / "records.json"
    command = ["-m", "labkit", "run", "passport", "--quick", "--out", str(out)]
    with Fabric.star(hosts=2, rate="2gbit") as fabric:
        nodes = [
            agent(host, 29500, *command, place=fabric.placement(host, 2), master=address(0))
            for host in range(2)
        ]
        first, second = (node.communicate(timeout=100) for node in nodes)
        assert [node.returncode for node in nodes] == [0, 0], first[1] + second[1]
        *messages, _ = records.load(out)
        assert messages[-1].algbw == approx(fabric.payload_rate(0, 1), rel=0.1)
    assert [node.ranks for node in messages[0].provenance.nodes] == [(0,), (1,)]
    assert "2 nodes" in first[0]


HANGS = """
import os, time
import torch, torch.distributed as dist
from labkit import launch
def program():
    dist.barrier()
    print(os.getpid(), flush=True)
    time.sleep(3)
    dist.all_reduce(torch.ones(1000))
launch(program, timeout=40)
"""


def test_a_node_that_dies_in_the_middle_ends_the_other(tmp_path):
    script = tmp_path / "hangs.py"
    script.write_text(HANGS)
    port = free_port()
    nodes = [agent(node, port, str(script)) for node in range(2)]
    rank_1 = int(nodes[1].stdout.readline())
    for process in (nodes[1].pid, rank_1):  # the node's agent, and its rank in a session of its own
        os.kill(process, signal.SIGKILL)
    _, told = nodes[0].communicate(timeout=60)
    nodes[1].communicate()
    assert nodes[0].returncode != 0
    assert "Error" in told


def test_a_nonsense_patience_is_a_value_error(monkeypatch):
    monkeypatch.setenv(roll_call.PATIENCE, "soon")
    with raises(ValueError, match="soon"):
        roll_call.patience()


def test_under_torchrun_there_is_no_fabric(monkeypatch):
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.setenv(name, "1")
    with raises(FabricUnavailable, match="torchrun"), Fabric.star(hosts=2, rate="100mbit"):
        pass
