"""Watch the ranks of one launch: pass on what they print, and learn how each of them ended."""

from __future__ import annotations

import contextlib
import os
import pickle
import selectors
import signal
import socket
import sys
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from labkit.launch.casefile import CaseFile, RankCase, parse_calls, parse_stack
from labkit.launch.errors import Failure, LaunchTimeout, RankDied, reraise
from labkit.launch.job import DUMP, DUMPED, FINISHED, RAISED
from labkit.launch.serverlink import ServerLink
from labkit.launch.spawner import Spawner

_GRACE = 0.3  # seconds between the first failure and the verdict, at most: others may fail alike
_DUMP_TIME = 1.5  # seconds that ranks get to write down where they stand
_OUTERMOST = "in <module>\n"  # the last line of a whole stack: the main thread's is written last
_STDERR_LINES = 16
_NOISE = (
    "/labkit/launch/",
    'File "<string>"',
    "Extension modules:",
)  # of faulthandler, to a learner


@dataclass(slots=True)
class _Stream:
    """One rank's stdout or stderr on its way to the cell, line by line."""

    rank: int
    name: str
    descriptor: int
    partial: bytes = b""
    tail: deque[str] = field(default_factory=lambda: deque(maxlen=_STDERR_LINES))

    def pump(self) -> bool:
        """Pass on what is there; say whether there may be more."""
        data = os.read(self.descriptor, 65536)
        *lines, self.partial = (self.partial + data).split(b"\n")
        if not data and self.partial:
            lines, self.partial = [self.partial], b""
        for line in lines:
            text = line.decode(errors="replace")
            self.tail.append(text)
            print(f"[rank {self.rank}] {text}", file=getattr(sys, self.name), flush=True)
        return bool(data)


@dataclass(slots=True)
class _Rank:
    number: int
    pid: int
    control: socket.socket
    streams: tuple[_Stream, _Stream]
    state: str = "running"
    status: int | None = None
    dumped: bool = False


class Supervisor:
    """The ranks of one launch, from the first fork to the last byte of output."""

    def __init__(self, server: ServerLink | Spawner, directory: Path, world_size: int) -> None:
        self.server = server
        self.directory = directory
        self.world_size = world_size
        self.ranks: list[_Rank] = []
        self.raised: list[int] = []  # ranks in order of arrival
        self.selector = selectors.DefaultSelector()
        self.selector.register(server.socket, selectors.EVENT_READ, self._note_exits)

    def start(self) -> None:
        """Start all ranks."""
        for number in range(self.world_size):
            control, theirs = socket.socketpair()
            out, their_out = os.pipe()
            err, their_err = os.pipe()
            try:
                given = [their_out, their_err, theirs.fileno()]
                pid = self.server.start_rank(self.directory, number, given)
            except BaseException:  # the server is gone, or an interrupt came
                os.close(out)
                os.close(err)
                control.close()
                raise
            finally:
                theirs.close()
                os.close(their_out)
                os.close(their_err)
            streams = (_Stream(number, "stdout", out), _Stream(number, "stderr", err))
            rank = _Rank(number, pid, control, streams)
            self.ranks.append(rank)
            for stream in streams:
                os.set_blocking(stream.descriptor, False)
                self.selector.register(stream.descriptor, selectors.EVENT_READ, stream)
            self.selector.register(control, selectors.EVENT_READ, rank)

    def watch(self, timeout: float) -> list[object]:
        """Wait until every rank has returned; return their results by rank.

        Raises:
            Exception: A rank's own exception.
            RankDied: If a rank's process ended.
            LaunchTimeout: If ranks had not finished after ``timeout`` seconds.
        """
        deadline = time.monotonic() + timeout
        while self._running() and not self._failed():
            left = deadline - time.monotonic()
            if left <= 0:
                raise LaunchTimeout(timeout, self._case_file())
            self._step(left)
        if self._failed():
            self._step_until(time.monotonic() + _GRACE, lambda: not self._running())
            self._raise()
        return [self._result(rank) for rank in self.ranks]

    def close(self) -> None:
        """Pass on the last output and close everything; the ranks must be gone."""
        for rank in self.ranks:
            for stream in rank.streams:
                with contextlib.suppress(BlockingIOError):  # somebody still holds the other end
                    while stream.pump():
                        pass
                os.close(stream.descriptor)
            rank.control.close()
        self.selector.close()

    def _running(self) -> bool:
        return any(rank.state == "running" for rank in self.ranks)

    def _failed(self) -> bool:
        return any(rank.state in {"raised", "died"} for rank in self.ranks)

    def _step(self, patience: float) -> None:
        for key, _ in self.selector.select(patience):
            if isinstance(key.data, _Stream):
                if not key.data.pump():
                    self.selector.unregister(key.fileobj)
            elif isinstance(key.data, _Rank):
                self._hear(key.data)
            else:
                key.data()

    def _step_until(self, moment: float, done: Callable[[], bool], every: float = 60.0) -> None:
        """Step until that moment or until it is done; look whether it is at least that often."""
        while (left := moment - time.monotonic()) > 0 and not done():
            self._step(min(left, every))

    def _hear(self, rank: _Rank) -> None:
        try:
            words = rank.control.recv(16)
        except OSError:
            words = b""
        if not words:
            self.selector.unregister(rank.control)
        if FINISHED in words:
            rank.state = "finished"
        elif RAISED in words:
            rank.state = "raised"
            self.raised.append(rank.number)
        if DUMPED in words:
            rank.dumped = True

    def _note_exits(self) -> None:
        exits = self.server.exits()
        for rank in self.ranks:
            if rank.pid in exits:
                rank.status = exits[rank.pid]
                if rank.state == "running":
                    rank.state = "died"

    def _result(self, rank: _Rank) -> object:
        return pickle.loads((self.directory / f"result-{rank.number}").read_bytes())

    def _raise(self) -> None:
        died = next((rank for rank in self.ranks if rank.state == "died"), None)
        if died is not None:  # what others raised is its consequence
            tail = [
                line
                for line in died.streams[1].tail
                if line.strip() and not any(noise in line for noise in _NOISE)
            ]
            raise RankDied(died.number, self.world_size, died.status, tail)
        failures: list[Failure] = [self._result(self.ranks[number]) for number in self.raised]
        reraise(failures, self.world_size)

    def _case_file(self) -> CaseFile:
        states = [rank.state for rank in self.ranks]  # now: a signal may end what a rank waits for
        for rank in self.ranks:
            try:
                rank.control.send(DUMP)
            except OSError:
                rank.dumped = True  # gone: nothing to wait for
        self._step_until(
            time.monotonic() + _DUMP_TIME, lambda: all(rank.dumped for rank in self.ranks)
        )
        silent = [rank for rank in self.ranks if not rank.dumped]
        for rank in silent:  # native code holds the interpreter: a signal still gets the stack
            with contextlib.suppress(OSError):
                os.kill(rank.pid, signal.SIGUSR1)
        self._step_until(
            time.monotonic() + _DUMP_TIME,
            lambda: all(self._stack(rank).endswith(_OUTERMOST) for rank in silent),
            every=0.02,  # a signal's handler cannot say when it is done
        )
        return CaseFile(tuple(map(self._case, self.ranks, states)))

    def _stack(self, rank: _Rank) -> str:
        """Return what the rank wrote, its answer to a signal first: that came before the other."""
        paths = [self.directory / f"{kind}-{rank.number}" for kind in ("signalled", "stack")]
        return next((text for p in paths if p.exists() and (text := p.read_text())), "")

    def _case(self, rank: _Rank, state: str) -> RankCase:
        calls = self.directory / f"calls-{rank.number}"
        return RankCase(
            rank.number,
            state,
            parse_stack(self._stack(rank)),
            parse_calls(calls.read_text()) if calls.exists() else (),
        )
