"""Run a program on several ranks, from anywhere, and get back what each rank returned."""

from __future__ import annotations

import contextlib
import os
import pickle
import re
import selectors
import signal
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from labkit.ranks import errors, machine, server, torchrun
from labkit.ranks import rank as words
from labkit.ranks.devices import usual
from labkit.ranks.options import Backend, Options, check_program, not_default
from labkit.ranks.parcel import Parcel, pack, result_of
from labkit.ranks.rank import END_OF_FAILED, Hosts, Job, Placement

if TYPE_CHECKING:
    from labkit.fabric.fabric import Fabric

_GRACE = 0.4  # seconds between the first failure and the verdict, at most: others may fail alike
_LONGER = 2.0  # seconds, where all that failed only follow from a failure of another rank
_PATIENCE = 5.0  # seconds, until it is known of a rank that failed in what way it did
_DUMP_TIME = 1.5  # seconds that ranks get to write down where they stand
_OUTERMOST = "in <module>\n"  # the last line of a whole stack: the main thread's is written last
_STDERR_LINES = 16
_MOMENT = 0.03  # seconds between two writes of what ranks print
_NOISE = re.compile('/labkit/ranks/|File "<string>"|Extension modules:')  # of faulthandler
_GLOOS = re.compile(r"^\[Gloo\] Rank |/gloo/transport/tcp/debug_logger\.cc")
"""What gloo logs of every new group before torch 2.13, and of every try to reach a dead rank."""
_one_at_a_time = threading.Lock()
P = ParamSpec("P")
T = TypeVar("T")


def launch(
    program: Callable[..., T],
    /,
    *args: Any,
    world_size: int | None = None,
    backend: Backend | None = None,
    fabric: Fabric | None = None,
    timeout: float = 60.0,
    init: bool = True,
    checks: bool = False,
    threads: int = 1,
    env: Mapping[str, str | None] | None = None,
    output: Sequence[int] | None = None,
    **kwargs: Any,
) -> list[T]:
    """Run a program on ``world_size`` fresh processes; return what each rank returned.

    Example:
        >>> import torch, torch.distributed as dist
        >>> def total():
        ...     x = torch.tensor(dist.get_rank())
        ...     dist.all_reduce(x)
        ...     return x.item()
        >>> launch(total, world_size=3)
        [3, 3, 3]

        Three ranks hold 0, 1 and 2; all_reduce leaves their sum, 3, on every one.

    The program is plain ``torch.distributed`` code: when it starts, the default process group is up
    and RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT are set as torchrun sets them. It
    may be typed in a notebook cell and use variables around it. What it prints appears here,
    prefixed by its rank.

    Under ``torchrun`` the same call uses the ranks that are there: each of them calls `launch`,
    runs the program, and gets the results of all.

    Args:
        program: The function to run. It must not be a generator or a coroutine. It gets no rank:
            ``dist.get_rank()`` tells.
        *args: Its arguments, the same on every rank.
        world_size: How many ranks; 4 if not given.
        backend: ``"gloo"`` or ``"nccl"``.
        fabric: Hosts and links to run on.
        timeout: Seconds that the ranks get.
        init: Whether the default group is up when the program starts.
        checks: Let torch compare the ranks' calls.
        threads: Intra-op threads of torch per rank.
        env: Environment variables to add, or with None to take away.
        output: The ranks whose output appears here.
        **kwargs: More arguments of the program, by name. (`labkit.ranks.options.Options` says more
            of the options above.)

    Returns:
        ``results[r]`` is what rank ``r`` returned.

    Raises:
        TypeError: If the program cannot run on ranks at all, naming what stands in the way.
        ValueError: If an argument makes no sense on this machine.
        RankDied: If a rank's process ended before it returned.
        LaunchTimeout: If ranks had not finished; its ``case`` tells where each one stands.
        Exception: A rank's own exception, with a note that names the rank. What other ranks had
            returned is in the ``results`` of any of these three, by rank.
    """
    __tracebackhide__ = True  # as in all that follows: a notebook leaves out all but the last frame
    options: dict[str, Any] = {
        "world_size": world_size,
        "backend": backend,
        "fabric": fabric,
        "timeout": timeout,
        "init": init,
        "checks": checks,
        "threads": threads,
        "env": env,
        "output": output,
    }
    check_program(program, args, kwargs, not_default(options))
    outcome = _outcome(Launcher(**options), program, args, kwargs)
    if isinstance(outcome, BaseException):
        raise outcome
    return outcome


@dataclass(frozen=True, kw_only=True)
class Launcher(Options):
    """A setting for `launch` that is used again and again; its fields are the options.

    In a call, all arguments are the program's. For another setting: ``dataclasses.replace``.

    Example:
        >>> on_two = Launcher(world_size=2, timeout=20)
        >>> on_two(pow, 3, 2)
        [9, 9]

        Each of two ranks computed 3 squared.
    """

    def __call__(self, program: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> list[T]:
        """Run ``program(*args, **kwargs)`` as `launch` does."""
        __tracebackhide__ = True
        check_program(program, args, kwargs)
        outcome = _outcome(self, program, args, kwargs)
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome


def _outcome(
    options: Options, program: Callable[..., T], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> list[T] | BaseException:
    """Return what the ranks returned, or how they failed: a traceback shall not end in here."""
    __tracebackhide__ = True
    if torchrun.is_here():
        for name, value in (("env", options.env), ("output", options.output)):
            if value is not None:
                raise ValueError(
                    f"{name}= is for ranks that launch starts; these are torchrun's. Give it to "
                    "torchrun: variables before the command, --log-dir and --local-ranks-filter."
                )
        return torchrun.run_on_ranks(partial(program, *args, **kwargs), options)
    if "LABKIT_RANK" in os.environ:
        raise RuntimeError(
            f"launch was called on rank {os.environ['LABKIT_RANK']} of a launch. "
            "Ranks cannot start ranks: call launch outside the program. In a script whose ranks "
            'start processes of their own by spawning, call it below `if __name__ == "__main__":`.'
        )
    ours = torchrun.without_leftovers()
    wanted = (ours | dict(options.env or {})).items()
    fabric, world_size = options.fabric, options.size
    parcel = pack(program, args, kwargs)
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    try:
        cwd = str(Path.cwd())
    except FileNotFoundError:
        raise FileNotFoundError(
            "the working directory, in which ranks would start, was deleted: os.chdir to another."
        ) from None
    job = Job(
        world_size=world_size,
        backend=_choose_backend(options.backend, world_size, fabric),
        init=options.init,
        checks=options.checks,
        threads=options.threads,
        placements=_placements(fabric, world_size),
        environment={name: text for name, text in wanted if text is not None},
        path=tuple(sys.path),
        argv=tuple(sys.argv[:1] if "kernel_launcher" in str(sys.argv[:1]) else sys.argv),
        cwd=cwd,
        main=(getattr(main, "__file__", None), getattr(spec, "name", None)),
    )
    try:
        with _one_at_a_time:
            return _run(job, parcel, options)
    except KeyboardInterrupt as interrupt:
        return interrupt.with_traceback(None)  # where it struck says nothing


def _placements(fabric: Hosts | None, world_size: int) -> tuple[Placement, ...]:
    """Return where each rank runs."""
    if fabric is None:
        return (Placement(),) * world_size  # one, many times: each rank reads all of them
    return tuple(fabric.placement(rank, world_size) for rank in range(world_size))


def _run(job: Job, program: Parcel, options: Options) -> list[Any] | BaseException:
    link = server.shared(job.environment)
    shown = range(job.world_size) if options.output is None else options.output
    supervisor = _Supervisor(link, job.world_size, shown)
    try:
        supervisor.start(job, program)
        return supervisor.watch(options.timeout)
    finally:
        try:
            link.end_launch()
        except BaseException:  # interrupted a second time, or the server is gone
            link.stop()
            raise
        finally:
            supervisor.close()


class _Screen:
    """What ranks print, on its way to the cell: all that came in a moment is one write.

    In a notebook each write is a message to the browser, and a server passes on 1000 a second.
    """

    def __init__(self) -> None:
        self.texts: dict[str, list[str]] = {"stdout": [], "stderr": []}
        self.seconds = 0.0
        """Spent on showing it."""
        self._next = 0.0

    def due(self) -> float:
        """Return the seconds until the next write; infinity where there is nothing to show."""
        return self._next - time.monotonic() if any(self.texts.values()) else float("inf")

    def show(self) -> None:
        start = time.monotonic()
        for name, texts in self.texts.items():
            text = "".join(texts)
            texts.clear()
            if text:
                print(text, end="", file=getattr(sys, name), flush=True)
        end = time.monotonic()
        self._next, self.seconds = end + _MOMENT, self.seconds + end - start


@dataclass(slots=True)
class _Stream:
    """One rank's stdout or stderr on its way to the cell, line by line."""

    rank: int
    descriptor: int
    screen: list[str] | None  # where they wait to be shown; None where they are not
    begun: list[bytes] = field(default_factory=list)
    """Parts of a line that has not ended: joined once, as it may be long."""
    drawn: bool = False  # whether its last line is on the screen and not ended
    tail: deque[str] = field(default_factory=partial(deque, maxlen=_STDERR_LINES))

    def drain(self) -> None:
        """Pass on all that is there; a child of the rank may still hold the other end."""
        with contextlib.suppress(BlockingIOError):
            while self.pump():
                pass

    def pump(self) -> bool:
        """Pass on what is there; say whether there may be more."""
        data = os.read(self.descriptor, 65536)
        first, *more = data.split(b"\n")
        self.begun.append(first)
        if more or not data:
            lines = [b"".join(self.begun), *more]
            self.begun = [lines.pop()] if data else []
            if not data:  # the end: what was begun is a line if there is anything in it
                lines = [line for line in lines if line]
            for line in lines:
                text = _last_state(line)
                if not _GLOOS.search(text):
                    self.tail.append(text)
                    self._print(text, "\n")
        is_bar = self.drawn or b"\r" in (more or [first])[-1]
        if self.screen is not None and self.begun and is_bar:
            whole = b"".join(self.begun)  # a progress bar draws over its line
            state = _last_state(whole)
            self.begun = [state.encode()]
            if whole.endswith(b"\r"):
                self.begun.append(b"\r")
            self._print(state, "")
        return bool(data)

    def _print(self, text: str, end: str) -> None:
        if self.screen is None:
            return
        start = "\r" if self.drawn else ""
        self.drawn = not end
        self.screen.append(f"{start}[rank {self.rank}] {text}{end}")


def _last_state(line: bytes) -> str:
    """Return what is seen of a line that was drawn over."""
    return line.rstrip(b"\r").rpartition(b"\r")[2].decode(errors="replace")


@dataclass(slots=True)
class _Rank:
    number: int
    control: socket.socket
    streams: tuple[_Stream, _Stream]
    pid: int | None = None
    state: str = "running"
    status: int | None = None
    heard: bytes = b""  # all words that it has said
    failure: errors.Failure | None = None
    fell: float = 0.0  # the last moment at which it was not yet known to have fallen


class _Supervisor:
    """The ranks of one launch: passes on what they print, and learns how each of them ends."""

    def __init__(self, link: server.Server, world_size: int, shown: Sequence[int]) -> None:
        self.link, self.world_size, self.shown = link, world_size, shown
        self.screen, self.port = _Screen(), socket.socket()
        self.ranks: list[_Rank] = []
        self.fallen: list[_Rank] = []
        """Ranks that raised or whose socket closed, as it was heard."""
        self.looked = time.monotonic()
        """When it was last heard what had happened, before what is being heard now."""
        self.selector = selectors.DefaultSelector()
        self.selector.register(link, selectors.EVENT_READ)

    def start(self, job: Job, program: Parcel) -> None:
        self.directory = self.link.begin_launch()
        program.write(self.directory / "program")
        # Rank 0's stores get this port: bound without listening, it is free for SO_REUSEADDR only.
        self.port.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.port.bind(("127.0.0.1", 0))
        (self.directory / "port").write_text(str(self.port.getsockname()[1]))
        (self.directory / "job").write_bytes(pickle.dumps(job))
        for number in range(self.world_size):
            control, theirs = socket.socketpair()
            out, their_out = os.pipe()
            err, their_err = os.pipe()
            screens = self.screen.texts if number in self.shown else {}
            to_out = _Stream(number, out, screens.get("stdout"))
            to_err = _Stream(number, err, screens.get("stderr"))
            rank = _Rank(number, control, (to_out, to_err))
            self.ranks.append(rank)
            for stream in rank.streams:
                os.set_blocking(stream.descriptor, False)
                self.selector.register(stream.descriptor, selectors.EVENT_READ, stream)
            self.selector.register(control, selectors.EVENT_READ, rank)
            try:
                rank.pid = self.link.start_rank(number, [their_out, their_err, theirs.fileno()])
            finally:
                theirs.close()
                os.close(their_out)
                os.close(their_err)

    def watch(self, timeout: float) -> list[Any] | BaseException:
        """Wait until every rank has returned; return their results by rank, or what went wrong."""
        deadline = time.monotonic() + timeout
        self._note_exits()  # while others were being started
        while self._running() and not self._failed():
            if (left := deadline - time.monotonic()) <= 0:
                late = errors.LaunchTimeout(timeout, self._case_file(), self.screen.seconds)
                late.results = self._results()
                return late
            self._step(left)
        if self._failed():
            return self._verdict()
        return [result_of(self.directory, rank) for rank in range(self.world_size)]

    def close(self) -> None:
        """Pass on the last output and close everything; the ranks must be gone."""
        for rank in self.ranks:
            for stream in rank.streams:
                stream.drain()
                os.close(stream.descriptor)
            rank.control.close()
        self.screen.show()
        self.port.close()
        self.selector.close()

    def _running(self) -> bool:
        return any(rank.state == "running" for rank in self.ranks)

    def _failed(self) -> list[_Rank]:
        """Return the ranks of which it is known that they raised or died, in that order.

        Who raises says when. Who dies cannot: it counts from the look before the one at which it
        was dead, since what others raise because of it comes after that. Those who were found dead
        at one look stay in the order in which the system lists them, on Linux that of their ends.
        """
        known = [rank for rank in self.fallen if rank.state in {"raised", "died"}]
        return sorted(known, key=lambda r: r.fell if r.state == "died" else self._failure(r).moment)

    def _step(self, seconds: float) -> None:
        events = self.selector.select(min(seconds, self.screen.due(), 3600.0))
        now = time.monotonic()
        for key, _ in events:
            if isinstance(key.data, _Stream):
                if not key.data.pump():
                    self.selector.unregister(key.fileobj)
            elif isinstance(key.data, _Rank):
                self._on_message(key.data)
            else:
                self._note_exits()
        self.looked = now
        if self.screen.due() <= 0:
            self.screen.show()

    def _step_until(self, moment: float, done: Callable[[], bool], every: float = 60.0) -> None:
        """Step until that moment or until it is done, asking at least every so many seconds."""
        while (left := moment - time.monotonic()) > 0 and not done():
            self._step(min(left, every))

    def _on_message(self, rank: _Rank) -> None:
        try:
            heard = rank.control.recv(16)
        except OSError:
            heard = b""
        rank.heard += heard
        if not heard:
            self.selector.unregister(rank.control)
        if (not heard and rank.state == "running") or words.FAILED in heard:
            self._note_fall(rank)
        if words.JOINED in heard:
            # It keeps its place in the kernel's list of what is ready, and its end would be told
            # of before earlier ones: registered anew, it has the place of its next event.
            self.selector.unregister(rank.control)
            self.selector.register(rank.control, selectors.EVENT_READ, rank)
            if self._have_said(words.JOINED, self.ranks):
                for other in self.ranks:
                    with contextlib.suppress(OSError):  # it has just died
                        other.control.send(words.GO)
        if words.FINISHED in heard:
            rank.state = "finished"
        elif words.RAISED in heard:
            rank.state = "raised"

    def _have_said(self, word: bytes, ranks: Sequence[_Rank]) -> bool:
        return all(word in rank.heard for rank in ranks)

    def _note_exits(self) -> None:
        exits = self.link.exits()
        for rank in self.ranks:
            if rank.pid in exits:
                rank.status = exits[rank.pid]
                if rank.state == "running":
                    rank.state = "died"
                    self._note_fall(rank)

    def _note_fall(self, rank: _Rank) -> None:
        if rank not in self.fallen:
            rank.fell = self.looked
            self.fallen.append(rank)

    def _results(self) -> dict[int, Any]:
        """Return what the ranks returned that have finished, as far as it can be rebuilt."""
        results = {}
        for rank in self.ranks:
            if rank.state == "finished":
                with contextlib.suppress(Exception):
                    results[rank.number] = result_of(self.directory, rank.number)
        return results

    def _verdict(self) -> BaseException:
        """Return what failed first, as an exception that tells what else did."""
        self._step_until(time.monotonic() + _GRACE, lambda: not self._running())
        self._await_verdicts()
        if all(rank.state == "raised" and self._failure(rank).follows for rank in self._failed()):
            known, moment = len(self.fallen), time.monotonic() + _LONGER
            self._step_until(moment, lambda: len(self.fallen) > known or not self._running())
            self._await_verdicts()
        fallen = self._failed()
        first = next(
            (rank for rank in fallen if rank.state == "died" or not self._failure(rank).follows),
            fallen[0],
        )
        if first.state == "died":
            others = ((rank.number, self._fate(rank)) for rank in fallen if rank is not first)
            return self._death(first, errors.together(others))
        raised = [rank for rank in fallen if rank.state == "raised"]
        moment = time.monotonic() + 2 * END_OF_FAILED
        self._step_until(moment, lambda: self._have_said(words.ENDED, raised))
        deaths = ((rank.number, self._fate(rank)) for rank in fallen if rank.state == "died")
        failures = [self._failure(rank) for rank in raised]
        later = errors.together(deaths)
        return errors.root_cause(failures, self.world_size, self._results(), later)

    def _await_verdicts(self) -> None:
        """Wait until it is known of each that fell whether it died, or what it raised."""
        moment = time.monotonic() + _PATIENCE
        self._step_until(moment, lambda: all(rank.state != "running" for rank in self.fallen))

    def _death(self, rank: _Rank, later: list[str]) -> errors.RankDied:
        stream = rank.streams[1]
        stream.drain()
        tail = [text for text in stream.tail if text.strip() and not _NOISE.search(text)]
        died = errors.RankDied(rank.number, self.world_size, rank.status or 0, tail, later)
        died.results = self._results()
        return died

    def _failure(self, rank: _Rank) -> errors.Failure:
        rank.failure = rank.failure or result_of(self.directory, rank.number)
        return rank.failure

    def _fate(self, rank: _Rank) -> str:
        """Return what became of a rank that fell, as a clause without its subject."""
        if rank.state == "died":
            return errors.death(rank.status or 0)
        failure = self._failure(rank)
        return "lost a connection to another" if failure.follows else f"raised {failure.headline}"

    def _case_file(self) -> errors.CaseFile:
        states = [rank.state for rank in self.ranks]  # now: a signal may end what a rank waits for
        for rank in self.ranks:
            try:
                rank.control.send(words.DUMP)
            except OSError:
                rank.heard += words.DUMPED  # gone: nothing to wait for
        moment = time.monotonic() + _DUMP_TIME
        self._step_until(moment, lambda: self._have_said(words.DUMPED, self.ranks))
        silent = [rank for rank in self.ranks if words.DUMPED not in rank.heard]
        for rank in silent:  # native code holds the interpreter: a signal still gets the stack
            assert rank.pid is not None, "it was started"
            with contextlib.suppress(OSError):
                os.kill(rank.pid, signal.SIGUSR1)
        self._step_until(
            time.monotonic() + _DUMP_TIME,
            lambda: all(self._stack(rank).endswith(_OUTERMOST) for rank in silent),
            every=0.02,  # a signal's handler cannot say when it is done
        )
        return errors.CaseFile(tuple(map(self._case, self.ranks, states)))

    def _stack(self, rank: _Rank) -> str:
        """Return the rank's stack: the one that a signal asked for, if any, since it is earlier."""
        return self._read(f"signalled-{rank.number}") or self._read(f"stack-{rank.number}")

    def _case(self, rank: _Rank, state: str) -> errors.RankCase:
        calls = self._read(f"calls-{rank.number}")
        return errors.RankCase.read(rank.number, state, self._stack(rank), calls)

    def _read(self, name: str) -> str:
        path = self.directory / name
        return path.read_text() if path.exists() else ""


def _choose_backend(backend: str | None, world_size: int, fabric: object) -> str:
    if fabric is not None and backend is None:
        return "gloo"
    if backend == "gloo":
        return backend
    gpus = machine.gpu_count()
    if backend is None:
        return usual(gpus, world_size)
    may_share = gpus and os.environ.get("NCCL_MULTI_RANK_GPU_ENABLE") == "1"  # NCCL 2.30
    if gpus < world_size and not may_share:
        remedy = f"world_size={gpus}" if gpus else "a machine with GPUs"
        raise ValueError(
            f'world_size={world_size} with backend="{backend}" needs {world_size} GPUs; '
            f'this machine has {gpus}. Use backend="gloo" or {remedy}.'
        )
    return backend
