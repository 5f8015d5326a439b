"""The fork server: one process that has imported torch, and forks ranks from it.

``import torch`` costs more than a second; a fork of a process that has done it costs milliseconds.
The server is a fresh interpreter with one thread. Its only tie to the process that started it is a
socket: when that closes, however the other side died, the server kills every rank, removes the
launch's private directory and ends. Its own death kills the ranks (Linux: PDEATHSIG).

This is `multiprocessing`'s forkserver in spirit. It is our own because theirs imports the caller's
``__main__`` again in every child, cannot tell who died of what, and outlives a killed parent for as
long as one child lives.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import json
import os
import select
import shutil
import signal
import socket
import sys
import traceback
from pathlib import Path

from labkit.launch.job import Job

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_DESCRIPTORS_PER_RANK = 3


def serve(connection: socket.socket) -> None:
    """Fork ranks as asked over ``connection`` until it closes."""
    importlib.import_module("labkit.launch.rank")  # torch, and all that a rank needs

    _prctl(_PR_SET_CHILD_SUBREAPER, 1)  # whatever a rank leaves becomes our child, to be ended
    gc.collect()
    gc.freeze()  # the collector would touch, and so copy, every shared page
    wake, waker = socket.socketpair()
    waker.setblocking(False)
    signal.set_wakeup_fd(waker.fileno(), warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    server = _Server(connection, (wake, waker))
    connection.sendall(_line(ready=True))
    while True:
        readable, _, _ = select.select([connection, wake], [], [])
        if wake in readable:
            wake.recv(4096)
            server.reap()
        if connection in readable and not server.obey():
            break
    server.end()


class _Server:
    def __init__(self, connection: socket.socket, wakers: tuple[socket.socket, ...]) -> None:
        self.connection = connection
        self.wakers = wakers
        self.alive: set[int] = set()
        self.directory: Path | None = None

    def obey(self) -> bool:
        """Carry out what was asked; say whether the other side is still there."""
        try:
            message, descriptors, _, _ = socket.recv_fds(
                self.connection, 4096, _DESCRIPTORS_PER_RANK
            )
        except OSError:
            message = b""
        if not message:
            return False
        for request in map(json.loads, message.splitlines()):
            self._carry_out(request, descriptors)
        return True

    def _carry_out(self, request: dict, descriptors: list[int]) -> None:
        if "rank" in request:
            self.directory = Path(request["directory"])
            pid = self.fork(request["rank"], descriptors)
            for descriptor in descriptors:
                os.close(descriptor)
            self.connection.sendall(_line(pid=pid))
        else:
            self.end()
            self.connection.sendall(_line(ended=True))

    def fork(self, rank: int, descriptors: list[int]) -> int:
        pid = os.fork()
        if pid:
            with contextlib.suppress(OSError):  # the child does it too: whoever comes first
                os.setpgid(pid, pid)
            self.alive.add(pid)
            return pid
        try:
            self._become_rank(rank, descriptors)
        except BaseException:
            traceback.print_exc()
        os._exit(70)  # EX_SOFTWARE: a rank stays in rank.main until it is killed

    def _become_rank(self, rank: int, descriptors: list[int]) -> None:
        os.setpgid(0, 0)  # so that a rank's own children die with it
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self.connection.close()
        for waker in self.wakers:
            waker.close()
        stdout, stderr, control = descriptors
        os.dup2(stdout, 1)
        os.dup2(stderr, 2)
        os.close(stdout)
        os.close(stderr)
        Job.load(self.directory).placements[rank].enter()  # before any thread exists
        from labkit.launch import rank as module

        module.main(self.directory, rank, socket.socket(fileno=control))

    def reap(self, *, block: bool = False) -> None:
        """Collect ended ranks and report them."""
        while self.alive:
            try:
                pid, status = os.waitpid(-1, 0 if block else os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            if pid in self.alive:
                self.alive.discard(pid)
                _kill_group(pid)
                code = os.waitstatus_to_exitcode(status)
                with contextlib.suppress(OSError):
                    self.connection.sendall(_line(exited=pid, status=code))

    def end(self) -> None:
        """Kill what is left of the launch and remove its directory."""
        for pid in self.alive:
            _kill_group(pid)
        self.reap(block=True)
        while orphans := _children():  # daemons: they had left the rank's process group
            for pid in orphans:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, 0)
        if self.directory is not None:
            shutil.rmtree(self.directory, ignore_errors=True)
            self.directory = None


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value)


def _children() -> list[int]:
    """Return this process's children; none where the kernel does not list them."""
    try:
        return [
            int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
        ]
    except OSError:
        return []


def _kill_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def _line(**fields: object) -> bytes:
    return json.dumps(fields).encode() + b"\n"
