"""Start ranks where there is no fork server: a fresh interpreter for each, with torch of its own.

`Spawner` does for a launch what `serverlink.ServerLink` does, through the same methods,
and keeps the same promises but for two. It is slow: every rank imports torch, which costs more than
a second of CPU, and the launch's timeout counts it. And what a rank has put into a session of its
own survives the launch; so does, when the launching process is killed, a rank whose native code
never lets go of the interpreter.

It is chosen by ``LABKIT_START=spawn``, and where the system has no fork: Windows. But there it can
only say so: a rank's socket is handed over as an inherited descriptor, which Windows does not have.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import queue
import shutil
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

from labkit.launch.errors import LaunchError

_BOOT = """\
import sys
sys.path[:0] = {path!r}
from pathlib import Path
from labkit.launch.job import Job
directory, rank, control = Path({directory!r}), {rank}, {control}
Job.load(directory).placements[rank].enter()  # before torch starts threads
import socket
from labkit.launch.rank import main
main(directory, rank, socket.socket(fileno=control))
"""


def is_needed() -> bool:
    """Say whether ranks must be spawned here: asked for by LABKIT_START, or for want of fork.

    Raises:
        ValueError: If LABKIT_START is neither ``fork`` nor ``spawn``.
    """
    wish = os.environ.get("LABKIT_START", "fork")
    if wish not in {"fork", "spawn"}:
        raise ValueError(f'LABKIT_START must be "fork" or "spawn", got {wish!r}.')
    return wish == "spawn" or not hasattr(os, "fork")


class Spawner:
    """Starts ranks as children of this process. Use `shared`."""

    def __init__(self) -> None:
        if sys.platform == "win32":
            raise LaunchError(
                "launch cannot start ranks on Windows. Use WSL2 (in PowerShell: wsl --install), "
                "and set the course up inside of it: there it runs as on any Linux."
            )
        self.owner = self.pid = os.getpid()
        self.socket, self._waker = socket.socketpair()
        self._ranks: list[tuple[subprocess.Popen, threading.Thread]] = []
        self._ended: queue.SimpleQueue[subprocess.Popen] = queue.SimpleQueue()
        self._directory: Path | None = None
        print(
            "labkit: each rank starts as a fresh interpreter here, not forked from a server. "
            "A launch takes seconds instead of a tenth of one.",
            file=sys.stderr,
        )

    def start_rank(self, directory: Path, rank: int, descriptors: list[int]) -> int:
        """Start a rank with these as its stdout, stderr and control socket; return its pid."""
        stdout, stderr, control = descriptors
        package = str(Path(__file__).resolve().parents[2])
        boot = _BOOT.format(path=[package], directory=str(directory), rank=rank, control=control)
        process = subprocess.Popen(
            [sys.executable, "-c", boot],
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            pass_fds=[control],
            process_group=0,  # so that a rank's own children die with it
        )
        self._directory = directory
        waiter = threading.Thread(target=self._await, args=(process,), daemon=True)
        self._ranks.append((process, waiter))
        waiter.start()
        return process.pid

    def exits(self) -> dict[int, int]:
        """Take the exit codes of the ranks that have ended since last asked, by pid."""
        self.socket.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            self.socket.recv(4096)
        ended = {}
        with contextlib.suppress(queue.Empty):
            while process := self._ended.get_nowait():
                ended[process.pid] = process.returncode
        return ended

    def end_launch(self) -> None:
        """Kill all ranks; return when they are gone, and the launch's directory with them."""
        self._kill()
        for _, waiter in self._ranks:
            waiter.join()
        self.exits()
        self._ranks.clear()
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)
            self._directory = None

    def stop(self) -> None:
        """Kill all ranks, wait for nothing, and be of no more use."""
        self._kill()
        self.socket.close()
        self._waker.close()

    def _kill(self) -> None:
        for process, waiter in self._ranks:
            if waiter.is_alive():
                _kill_group(process.pid)

    def _await(self, process: subprocess.Popen) -> None:
        process.wait()
        _kill_group(process.pid)
        self._ended.put(process)
        with contextlib.suppress(OSError):  # nobody wants to know any more
            self._waker.send(b"!")


def _kill_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


_spawner: Spawner | None = None


def shared() -> Spawner:
    """Return this process's spawner; the first call notes that it is slow."""
    global _spawner
    if _spawner is None or _spawner.owner != os.getpid() or _spawner.socket.fileno() < 0:
        _spawner = Spawner()
        atexit.register(_spawner.stop)
    return _spawner
