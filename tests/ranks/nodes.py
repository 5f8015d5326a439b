"""What programs need that start outside of the tests, and ranks of several nodes on one machine."""

import os
import socket
import subprocess
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MARKS = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
"""What torchrun leaves where a process starts others."""


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def environment(**more):
    """This process's variables, with this `python` and this labkit first."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    return os.environ | {"PATH": path, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"} | more


def python(*arguments, cwd=ROOT, timeout=100, **variables):
    """Run this `python` with this labkit; return what it printed, and its exit status."""
    options = {"capture_output": True, "text": True, "timeout": timeout}
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=cwd, env=environment(**variables), **options)


def started(script, **variables):
    """Start this `python` with a script; what it prints can be read while it runs."""
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True, "cwd": ROOT}
    command = [sys.executable, "-c", textwrap.dedent(script)]
    return subprocess.Popen(command, env=environment(**variables), **options)


def agent(node, port, *command, place=None, master="127.0.0.1"):
    """Start torchrun as one of two nodes: on this machine, or on a fabric's host (`place`)."""
    network = {"GLOO_SOCKET_IFNAME": place.interface} if place else {}
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nnodes=2", "--nproc-per-node=1"]
    torchrun += [f"--node-rank={node}", f"--master-addr={master}", f"--master-port={port}"]
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "cwd": ROOT}
    options |= {"start_new_session": True, "preexec_fn": place.enter if place else None}
    return subprocess.Popen([*torchrun, *command], env=environment(**network), **options)
