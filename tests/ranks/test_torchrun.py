"""Ranks that torchrun started, on one node or two (two agents stand for two nodes)."""

import os
import re
import signal
import subprocess

from pytest import approx, mark, raises

from labkit import LaunchError, launch
from labkit.fabric.fabric import Fabric
from labkit.fabric.plan import address
from labkit.measure import records
from labkit.ranks import torchrun
from tests.fabric.test_fabric import needs_hosts
from tests.ranks.nodes import MARKS, ROOT, agent, environment, free_port, python

pytestmark = mark.slow


def test_when_not_all_ranks_come_a_script_says_so_in_time_and_in_plain_words(monkeypatch, capsys):
    for name, value in (MARKS | {"MASTER_PORT": str(free_port())}).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(torchrun, "_PATIENCE", 0.1)
    monkeypatch.setattr(torchrun, "_START", 1.0)
    with raises(LaunchError) as caught:
        launch(print)
    assert "labkit: launch waits 1 s for the 2 ranks of a job." in capsys.readouterr().err
    assert str(caught.value).startswith("2 ranks were announced, but not all came in 1 s (")
    assert "Unset RANK, WORLD_SIZE" in str(caught.value)


THREE_RANKS = """
import os, time, torch, torch.distributed as dist
from labkit import launch, time_calls
def told(*lines):
    if os.environ["RANK"] == "0":
        print(*lines, sep="|", flush=True)
def failure_of(program, **options):
    try:
        launch(program, **options)
    except Exception as error:
        text = "connection lost" if "onnection" in str(error) else error
        return f"{type(error).__name__} {text}"

def total():
    x = torch.tensor([dist.get_rank() + 1]); dist.all_reduce(x)
    return x.item(), os.environ["WORLD_SIZE"]
told("used", launch(total), launch(total, world_size=2), failure_of(total, world_size=9))

def bad():
    if dist.get_rank() == 1:
        raise KeyError("mine")
def worse():
    dist.barrier()
    if dist.get_rank() == 1:
        time.sleep(0.2)
        raise KeyError("in the middle")
    dist.all_reduce(torch.ones(1))
def same():
    raise ValueError("everywhere")
told("failed", *map(failure_of, (bad, worse, same)))

def shapes():
    dist.all_reduce(torch.ones(1 + dist.get_rank()))
threads = launch(torch.get_num_threads, threads=2), launch(torch.get_num_threads)
restored = f"restored {torch.get_num_threads()} {dist.get_debug_level().name}"
told("as asked", *threads, restored, "Detected mismatch" in failure_of(shapes, checks=True))

nested = failure_of(lambda: launch(int))
assert launch(lambda n=1: n * dist.is_initialized(), n=2, init=False) == [0, 0, 0]
dist.init_process_group("gloo")
x = torch.ones(1)
refused = failure_of(int)
dist.all_reduce(x)
samples = len(time_calls(lambda: dist.all_reduce(x), iters=3))
told("own group", nested, refused, x.item() > 1, samples)
dist.destroy_process_group()

def program():
    if dist.get_rank() == 0:
        print("last words")
        dist.barrier()
launch(program, timeout=2)
"""


def test_a_job_of_three_ranks_from_the_first_launch_to_a_hang(tmp_path):
    """One job, since each takes seconds to start; what it tells has a subject."""
    script = tmp_path / "script.py"
    script.write_text(THREE_RANKS)
    done = python("-m", "torch.distributed.run", "--nproc-per-node=3", str(script))
    lines = (line.split("|") for line in done.stdout.splitlines())
    told, err = {subject: rest for subject, *rest in lines}, done.stderr

    everybody, fewer = "[(6, '3'), (6, '3'), (6, '3')]", "[(3, '2'), (3, '2')]"
    refused = "ValueError world_size=9, but 3 ranks were started."
    assert told.get("used") == [everybody, fewer, refused], err
    assert told["failed"] == [
        "LaunchError rank 1 of 3 raised KeyError: 'mine'",
        "RuntimeError connection lost",
        "ValueError everywhere",
    ]
    assert told.get("as asked") == ["[2, 2, 2]", "[1, 1, 1]", "restored 1 OFF", "True"], err

    assert "own group" in told, err
    nested, refused, *alive = told["own group"]
    assert nested.startswith("RuntimeError") and "Ranks cannot start ranks" in nested
    assert "made its default group already" in refused and "time_calls" in refused
    assert alive == ["True", "3"], "it is left alone, and the instruments work in it"

    assert done.returncode == 1
    late = "labkit: rank 0 of 3 was late after 2 s, waiting in barrier #1 of group default\n"
    assert late in err and "in program" in err.partition(late)[2]
    assert told["last words"] == [], "what was printed before that is shown"


DIES = """
import os, time
import torch, torch.distributed as dist
from labkit import launch
def program():
    dist.barrier()
    print(os.getpid(), flush=True)
    time.sleep(60 * int(os.environ["RANK"]))
    dist.all_reduce(torch.ones(1000))
launch(program, timeout=40)
"""


def test_a_rank_that_dies_in_the_middle_ends_the_other_node_and_is_named(tmp_path):
    script = tmp_path / "dies.py"
    script.write_text(DIES)
    port = free_port()
    nodes = [agent(node, port, str(script)) for node in range(2)]
    pid = next(line for line in nodes[1].stdout if line.strip().isdigit())  # gloo prints, too
    os.kill(int(pid), signal.SIGKILL)
    (_, error), (_, there) = (node.communicate(timeout=60) for node in nodes)
    assert all(node.returncode for node in nodes) and "Error" in error
    assert re.search(r"rank +: 1 .*\n +exitcode +: -9", there), there


@mark.exhaustive
@mark.timeout(400)
def test_the_command_for_a_cluster_runs_as_its_page_has_it(tmp_path):
    """Sixteen ranks on this machine, which takes two minutes on two CPUs."""
    page = (ROOT / "docs/cluster.md").read_text()
    command = re.search(r"^```bash\n(torchrun .*?)^```", page, re.MULTILINE | re.DOTALL)[1]
    given = environment(ADDRESS="127.0.0.1")
    nodes = [
        subprocess.Popen(["bash", "-c", command], cwd=tmp_path, env=given | {"NODE": str(node)})
        for node in range(2)
    ]
    assert [node.wait(300) for node in nodes] == [0, 0]
    assert {one.world_size for one in records.load(tmp_path / "records.json")} == {16}


@mark.exhaustive
@needs_hosts
@mark.timeout(240)
def test_two_hosts_of_a_fabric_are_two_nodes(tmp_path):
    """Each agent on a host of its own: the records tell of both, and of the link between them.

    That is slow enough for CPUs that have other work to do.
    """
    out = tmp_path / "records.json"
    command = ["-m", "course", "run", "passport", "--quick", "--out", str(out)]
    with Fabric.star(hosts=2, rate="600mbit") as fabric:
        nodes = [
            agent(host, 29500, *command, place=fabric.placement(host, 2), master=address(0))
            for host in range(2)
        ]
        first, second = (node.communicate(timeout=200) for node in nodes)
        assert [node.returncode for node in nodes] == [0, 0], first[1] + second[1]
        messages = [record for record in records.load(out) if record.case == "ping-pong"]
        assert messages[-1].algbw == approx(fabric.payload_rate(0, 1), rel=0.1)
    assert messages[0].provenance.nodes == ((0,), (1,))
    assert all(text in first[0] for text in ("2 nodes", "ping-pong", str(out)))
    assert "ping-pong" not in second[0], "rank 0 alone prints"
