"""The launching process's end of the fork server: start it, ask it, notice when it is gone."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from labkit.launch.errors import LaunchError

_BOOT = """\
import sys, socket
sys.path[:0] = {path!r}
from labkit.launch.server import serve
serve(socket.socket(fileno={descriptor}))
"""
_START_TIMEOUT = 120.0


class ServerLink:
    """A running fork server. Use `shared`; one server serves a process for its whole life."""

    def __init__(self) -> None:
        self.owner = os.getpid()
        self._buffer = b""
        self._exits: dict[int, int] = {}
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115  (open as long as the server lives)
        self.socket, theirs = socket.socketpair()
        package = str(Path(__file__).resolve().parents[2])
        boot = _BOOT.format(path=[package], descriptor=theirs.fileno())
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-c", boot],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._stderr,
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # Ctrl-C in a terminal is for the launching process alone
            )
        self.socket.settimeout(_START_TIMEOUT)
        self._wait_for("ready")

    @property
    def pid(self) -> int:
        """The server's process id."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether the server is still there, and the link to it."""
        return self.socket.fileno() >= 0 and self._process.poll() is None

    def start_rank(self, directory: Path, rank: int, descriptors: list[int]) -> int:
        """Fork a rank with these as its stdout, stderr and control socket; return its pid."""
        request = json.dumps({"directory": str(directory), "rank": rank}).encode() + b"\n"
        socket.send_fds(self.socket, [request], descriptors)
        return self._wait_for("pid")

    def end_launch(self) -> None:
        """Kill all ranks; return when they are gone, and the launch's directory with them."""
        with contextlib.suppress(OSError):  # gone: reading says so, with the reason
            self.socket.sendall(b'{"end": true}\n')
        self._wait_for("ended")
        self._exits.clear()

    def exits(self) -> dict[int, int]:
        """Take the exit codes of the ranks that have ended since last asked, by pid.

        As in `subprocess`, a negative code is the number of the signal that killed the process.
        """
        self.socket.setblocking(False)
        try:
            with contextlib.suppress(BlockingIOError):
                self._receive()
        finally:
            self.socket.settimeout(_START_TIMEOUT)
        exits, self._exits = self._exits, {}
        return exits

    def stop(self) -> None:
        """End the server; its ranks die with it."""
        if os.getpid() != self.owner:
            return  # a fork of the launching process has no say
        self.socket.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=5)
        self._stderr.close()

    def _wait_for(self, key: str) -> int:
        while True:
            for message in self._messages():
                if key in message:
                    return message[key]
            try:
                self._receive(parse=False)
            except TimeoutError:
                raise LaunchError(
                    f"the fork server did not answer in {_START_TIMEOUT:g} s"
                ) from None

    def _receive(self, *, parse: bool = True) -> None:
        try:
            data = self.socket.recv(65536)
        except ConnectionResetError:
            data = b""
        if not data:
            self._process.wait()
            self._stderr.seek(0)
            said = self._stderr.read().decode(errors="replace").strip()
            raise LaunchError(
                f"the fork server ended (status {self._process.returncode}). {said}".rstrip()
            )
        self._buffer += data
        if parse:
            for _ in self._messages():
                pass

    def _messages(self) -> list[dict]:
        *lines, self._buffer = self._buffer.split(b"\n")
        messages = [json.loads(line) for line in lines]
        for message in messages:
            if "exited" in message:
                self._exits[message["exited"]] = message["status"]
        return messages


_lock = threading.Lock()
_link: ServerLink | None = None


def shared() -> ServerLink:
    """Return this process's fork server; the first call starts it, in a second or two."""
    global _link
    with _lock:
        if _link is None or _link.owner != os.getpid() or not _link.alive:
            _link = ServerLink()
            atexit.register(_link.stop)
        return _link


def discard() -> None:
    """Stop the server; the next launch starts a fresh one."""
    global _link
    with _lock:
        if _link is not None:
            _link.stop()
            _link = None
