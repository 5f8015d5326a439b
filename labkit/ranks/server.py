"""The fork server: one process that has imported torch, and forks ranks from it.

``import torch`` costs more than a second; a fork of a process that has done it costs milliseconds.
The first optimizer or DDP of a process imports 800 further modules, which costs another second in
each rank: what the ranks of one launch imported of torch, the server imports after its end.
So it does with `errors.LIBRARIES`; it forgets them when one of their files was written.
The server is a fresh interpreter with one thread. Its only tie to the process that started it is a
socket: when that closes, however the other side died, the server kills every rank and ends. It
makes each launch's private directory and is the one that deletes it. When the server itself is
killed, its ranks die with it (Linux: PDEATHSIG).

`multiprocessing`'s forkserver imports the caller's ``__main__`` again in every child, cannot tell
who died of what, and outlives a killed parent for as long as one child lives.

With ``LABKIT_START=spawn`` the server imports nothing, and every rank is a fresh interpreter that
imports torch for itself: slow, and meant for systems where a process with torch cannot fork.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import fcntl
import gc
import importlib
import json
import os
import re
import resource
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from labkit.ranks import rank as rank_module
from labkit.ranks.errors import LaunchError, hint, of_library
from labkit.ranks.parcel import ON_DISK

_TIMEOUT = 120.0  # seconds; the server answers in milliseconds, but first imports torch
_SERVE = "from labkit.ranks.server import serve; serve({descriptor}, fresh={fresh})"
_RANK = "from labkit.ranks.rank import main; main({directory!r}, {rank}, {control})"
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_MADV_COLLAPSE = 25
_AT_IMPORT = re.compile(
    "TORCH|PYTORCH|ATEN_|OMP_|KMP_|GOMP_|MKL_|DNNL_|ONEDNN_|OPENBLAS_|LD_|PYTHON|MALLOC_"
    "|GLIBC_TUNABLES|LABKIT_START"
)
"""How variables begin that count from a process's start, or from the import of torch."""
_AT_USE = re.compile(
    "TORCHINDUCTOR_CACHE_DIR|TORCH_DISTRIBUTED_DEBUG|TORCH_(FR|NCCL|GLOO)_|TORCHELASTIC_"
)
"""Those among them that a rank reads later: torch.compile sets the first one itself."""
_told: set[str] = set()
_lock = threading.Lock()
_server: Server | None = None


def shared(environment: Mapping[str, str] | None = None) -> Server:
    """Return this process's server; the first call starts it, in a second or two.

    So does a call with another environment, if torch would read the difference at import.
    """
    global _server
    environment = dict(os.environ if environment is None else environment)
    start = environment.get("LABKIT_START")
    if start not in {None, "fork", "spawn"}:
        raise ValueError(f'LABKIT_START must be "fork" or "spawn", got {start!r}.')
    if sys.platform == "win32":
        raise LaunchError(
            "launch cannot start ranks on Windows. Use WSL2 (in PowerShell: wsl --install), "
            "and install labkit inside of it: there it runs as on any Linux."
        )
    with _lock:
        if _server is None or not _server.serves(environment):
            if _server is not None:
                _server.stop()
                _note_what_changed(_server.environment, environment)
            _server = Server(environment)
        return _server


def _read_at_import(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that torch, what it loads, or the process itself reads but once."""
    return {
        name: text
        for name, text in environment.items()
        if _AT_IMPORT.match(name) and not _AT_USE.match(name)
    }


def _note_what_changed(before: Mapping[str, str], now: Mapping[str, str]) -> None:
    differing = dict(_read_at_import(before).items() ^ _read_at_import(now).items())
    if new := sorted(differing.keys() - _told):
        _told.update(new)
        print(
            f"labkit: {', '.join(new)} changed, which is read at import: ranks come from a fresh "
            "server, which takes a second or two.",
            file=sys.stderr,
        )


@atexit.register
def discard() -> None:
    """Stop the server; the next launch starts a fresh one."""
    global _server
    with _lock:
        if _server is not None:
            _server.stop()
            _server = None


class Server:
    """A running server, seen from the launching process. Use `shared`."""

    def __init__(self, environment: dict[str, str]) -> None:
        self.owner, self.environment = os.getpid(), environment
        self.directory: Path | None = None
        self._buffer = b""
        self._exits: dict[int, int] = {}
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115  (open as long as the server lives)
        self._socket, theirs = socket.socketpair()
        with theirs:
            self._process = self._start(theirs.fileno())
        self._socket.settimeout(_TIMEOUT)
        try:
            self._answer_to("ready")
        except BaseException:
            self.stop()
            raise

    def _start(self, descriptor: int) -> subprocess.Popen[bytes]:
        fresh = self.environment.get("LABKIT_START") == "spawn"
        return subprocess.Popen(
            interpreter(_SERVE.format(descriptor=descriptor, fresh=fresh)),
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self._stderr,
            pass_fds=[descriptor],
            start_new_session=True,  # Ctrl-C in a terminal is for the launching process alone
        )

    @property
    def pid(self) -> int:
        """The server's process id."""
        return self._process.pid

    def fileno(self) -> int:
        """Return the descriptor that becomes readable when ranks have ended."""
        return self._socket.fileno()

    def serves(self, environment: Mapping[str, str]) -> bool:
        """Say whether it is there for this process, and its ranks are as in this environment."""
        if self.owner != os.getpid() or self.fileno() < 0 or self._process.poll() is not None:
            return False
        return _read_at_import(self.environment) == _read_at_import(environment)

    def begin_launch(self) -> Path:
        """Return a private directory, in memory where that is possible: ranks meet in it."""
        self.directory = Path(self._ask("begin"))
        return self.directory

    def start_rank(self, rank: int, descriptors: list[int]) -> int:
        """Start a rank with these as its stdout, stderr and control socket; return its pid."""
        pid = self._ask("start", rank, descriptors)
        if isinstance(pid, str):
            raise LaunchError(f"rank {rank} could not be started: {pid}. {hint(pid)}")
        return pid

    def exits(self) -> dict[int, int]:
        """Take the exit codes of the ranks that have ended since last asked, by pid.

        As in `subprocess`, a negative code is the number of the signal that killed the process.
        """
        if select.select([self._socket], [], [], 0)[0]:
            self._receive()
        exits, self._exits = self._exits, {}
        return exits

    def end_launch(self) -> None:
        """Kill all ranks; return when they are gone, and the launch's directory with them."""
        self._ask("end")
        self._exits.clear()

    def stop(self) -> None:
        """End the server; its ranks die with it."""
        if os.getpid() != self.owner:
            return  # a fork of the launching process must leave it alone
        self._socket.close()
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:  # on a machine that is very busy
            self._process.kill()
            self._last_words()
        self._stderr.close()

    def _ask(self, what: str, value: Any = None, descriptors: list[int] | None = None) -> Any:
        with contextlib.suppress(ConnectionError):  # gone: reading says so, with the reason
            socket.send_fds(self._socket, [_message(what, value)], descriptors or [])
        return self._answer_to(what)

    def _answer_to(self, what: str) -> Any:
        while True:
            for kind, value in self._receive():
                if kind == what:  # others answer what was asked before an interrupt
                    return value

    def _receive(self) -> list[tuple[str, Any]]:
        try:
            data = self._socket.recv(65536)
        except ConnectionResetError:
            data = b""
        except TimeoutError:
            raise LaunchError(f"the fork server did not answer in {_TIMEOUT:g} s") from None
        if not data:
            raise LaunchError(f"the fork server ended {self._last_words()}")
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        messages = list(map(json.loads, lines))
        self._exits |= dict(value for kind, value in messages if kind == "exited")
        return messages

    def _last_words(self) -> str:
        status = self._process.wait()
        if self.directory is not None:  # killed: then its launch's files are left to us
            _remove(self.directory)
        self._stderr.seek(0)
        return f"(status {status}). {self._stderr.read().decode(errors='replace')}".strip()


def serve(descriptor: int, *, fresh: bool) -> None:
    """Start ranks as asked over this socket until it closes."""
    gc.disable()  # it would take a quarter of the time of importing torch, and free little
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)  # whatever a rank leaves becomes our child, to be ended
    if not fresh:
        importlib.import_module("torch.distributed")
        _prepare_to_fork()
    wake, waker = socket.socketpair()
    waker.setblocking(False)
    signal.set_wakeup_fd(waker.fileno(), warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    connection = socket.socket(fileno=descriptor)
    ranks = _Ranks(connection, (wake, waker), fresh=fresh)
    ranks.answer("ready")
    try:
        while True:
            readable, _, _ = select.select([connection, wake], [], [])
            if wake in readable:
                wake.recv(4096)
                ranks.reap()
            if connection in readable and not ranks.obey():
                break
    finally:
        ranks.end()


class _Ranks:
    """The ranks of one launch, as the server sees them."""

    def __init__(self, connection: socket.socket, wakers: tuple[Any, ...], *, fresh: bool) -> None:
        self.connection, self.wakers, self.fresh = connection, wakers, fresh
        self.alive: set[int] = set()
        self.directory: str | None = None
        self.to_import: dict[str, str] = {}
        """Modules that the ranks of the last launch had to import, and their files."""
        self.of_libraries: dict[str, int | None] = {}
        """Those of libraries that were imported here, and when their files had been written."""

    def obey(self) -> bool:
        """Carry out what was asked; say whether the other side is still there."""
        try:
            message, descriptors, _, _ = socket.recv_fds(self.connection, 4096, 3)
        except OSError:
            message = b""
        if not message:
            return False
        for what, value in map(json.loads, message.splitlines()):
            if what == "begin":
                if any(_written(_file(name)) != at for name, at in self.of_libraries.items()):
                    self.forget_libraries()
                self.directory = _private_folder()
                self.answer(what, self.directory)
            elif what == "start":
                self.answer(what, self.start(value, descriptors))
            else:
                self.end()
                self.answer(what)
                self.import_missed()
        return True

    def answer(self, what: str, value: Any = None) -> None:
        with contextlib.suppress(OSError):  # nobody listens any more
            self.connection.sendall(_message(what, value))

    def start(self, rank: int, descriptors: list[int]) -> int | str:
        """Fork a rank and return its pid, or why no process can be made."""
        try:
            pid = os.fork()
        except OSError as error:
            for descriptor in descriptors:
                os.close(descriptor)
            return error.strerror or str(error)
        if pid == 0:
            try:
                self._become_rank(rank, *descriptors)
            except BaseException:
                traceback.print_exc()
            os._exit(70)  # EX_SOFTWARE: a rank stays in rank.main until it is killed
        with contextlib.suppress(OSError):  # the child does it too: whoever comes first
            os.setpgid(pid, pid)
        self.alive.add(pid)
        for descriptor in descriptors:
            os.close(descriptor)
        return pid

    def _become_rank(self, rank: int, stdout: int, stderr: int, control: int) -> None:
        os.setpgid(0, 0)  # so that a rank's own children die with it
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for inherited in (self.connection, *self.wakers):
            inherited.close()
        for descriptor, number in ((stdout, 1), (stderr, 2)):
            os.dup2(descriptor, number)
            os.close(descriptor)
        # Linux closes a killed process's files from the highest number down. No peer may hear of
        # its end, and end itself, before the launcher does.
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        most = 4096 if most == resource.RLIM_INFINITY else min(most, 4096)
        low, control = control, fcntl.fcntl(control, fcntl.F_DUPFD, most - 8)
        os.close(low)
        if self.fresh:
            os.set_inheritable(control, True)
            command = _RANK.format(directory=self.directory, rank=rank, control=control)
            os.execv(sys.executable, interpreter(command))
        gc.enable()
        assert self.directory is not None, "begin came first"
        rank_module.main(self.directory, rank, control)

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
                self.answer("exited", (pid, os.waitstatus_to_exitcode(status)))

    def import_missed(self) -> None:
        """Import what the ranks of the last launch missed: those of the next one will have it."""
        if not self.to_import:
            return
        # Counting GPUs without NVML, as a module may on import, makes later forks unfit for CUDA.
        os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"  # a rank gets its own environment
        before = set(sys.modules)
        for name in self.to_import:
            with contextlib.suppress(Exception):  # then ranks import it for themselves, as before
                importlib.import_module(name)
        new = {name: _file(name) for name in set(sys.modules) - before}
        libraries = {name: file for name, file in new.items() if of_library(file)}
        self.of_libraries |= {name: _written(file) for name, file in libraries.items()}
        if any(self.to_import.get(name, file) != file for name, file in libraries.items()):
            self.forget_libraries()  # their path leads to other files than ours
        self.to_import = {}
        _prepare_to_fork()

    def forget_libraries(self) -> None:
        """Let ranks import libraries for themselves."""
        for name in self.of_libraries:
            sys.modules.pop(name, None)
        self.of_libraries = {}

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
            if not self.fresh:
                with contextlib.suppress(OSError):
                    self.to_import = json.loads(Path(self.directory, "imported").read_bytes())
            _remove(Path(self.directory))
            self.directory = None


def _file(name: str) -> str:
    return getattr(sys.modules.get(name), "__file__", None) or ""


def _written(file: str) -> int | None:
    """Return when a file was last written; None where it is gone."""
    with contextlib.suppress(OSError):
        return Path(file).stat().st_mtime_ns
    return None


def _prepare_to_fork() -> None:
    """Make what was imported cheap to fork, and its end cheap for a rank."""
    getattr(weakref.finalize, "_registry", {}).clear()  # torch's: 30 ms at each rank's end
    importlib.invalidate_caches()  # folders of the path may come and go before the next launch
    gc.freeze()  # the collector would touch, and so copy, every shared page
    _use_huge_pages()


def interpreter(code: str) -> list[str]:
    """Return the command of one with our path, in which no namesake hides a module of Python."""
    python, ours = str(Path(os.__file__).parent), str(Path(__file__).parents[2])
    # A relative entry stands for the folder that this labkit came from.
    path = [x if Path(x).is_absolute() else ours for x in sys.path if isinstance(x, str)]
    path.sort(key=lambda entry: not entry.startswith(python) or "-packages" in entry)
    return [sys.executable, "-c", f"import sys; sys.path[:] = {path}; {code}"]


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value)


def _use_huge_pages() -> None:
    """Move to huge pages what is not on them yet: a fork copies a table entry for each page.

    That halves what a fork and the end of its process cost. A rank that writes to such a page gets
    a small one of its own, as before. Where the kernel cannot do it (before Linux 6.1) all stays.
    """
    try:
        size = int(Path("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size").read_text())
        areas = [line.split() for line in Path("/proc/self/maps").read_text().splitlines()]
    except (OSError, ValueError):
        return
    madvise = ctypes.CDLL(None).madvise
    for span, rights, _, _, inode, *name in areas:
        if rights.startswith("rw") and inode == "0" and name in ([], ["[heap]"]):
            begin, end = (int(address, 16) // size * size for address in span.split("-"))
            for page in range(begin + size, end, size):
                madvise(ctypes.c_void_p(page), ctypes.c_size_t(size), _MADV_COLLAPSE)


def _private_folder() -> str:
    """Make a launch's folder: in memory, if that can be, with another one on disk behind it."""
    prefix, memory = f"labkit-{os.getppid()}-", "/dev/shm"
    if not os.access(memory, os.W_OK) or shutil.disk_usage(memory).free <= 2**18:
        return tempfile.mkdtemp(prefix=prefix)
    folder = tempfile.mkdtemp(prefix=prefix, dir=memory)
    with contextlib.suppress(OSError):  # the disk is full: then all must fit into memory
        Path(folder, ON_DISK).symlink_to(tempfile.mkdtemp(prefix=prefix))
    return folder


def _remove(folder: Path) -> None:
    with contextlib.suppress(OSError):
        shutil.rmtree((folder / ON_DISK).readlink(), ignore_errors=True)
    shutil.rmtree(folder, ignore_errors=True)


def _children() -> list[int]:
    """Return this process's children; none where the kernel does not list them."""
    with contextlib.suppress(OSError):
        children = Path(f"/proc/self/task/{os.getpid()}/children").read_text()
        return [int(pid) for pid in children.split()]
    return []


def _kill_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def _message(what: str, value: Any) -> bytes:
    return json.dumps([what, value]).encode() + b"\n"
