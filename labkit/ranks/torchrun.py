"""The same `launch` on ranks that torchrun has started already, on one node or several.

Before the first program the ranks call the roll: all must be there.
"""

from __future__ import annotations

import contextlib
import faulthandler
import itertools
import json
import os
import pickle
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import cloudpickle

from labkit.ranks.errors import CaseFile, LaunchError, LaunchTimeout, RankCase
from labkit.ranks.machine import Machine
from labkit.ranks.rank import calls, compare_calls, join

if TYPE_CHECKING:
    from torch.distributed import Store

JOIN_TIMEOUT = "LABKIT_JOIN_TIMEOUT"
"""Environment variable: seconds that ranks wait for each other at the start."""
_MARKS = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
_GRACE = 10.0  # seconds that a rank which is done waits for the others, which may be dead
_BUSY = 7200.0  # seconds that a rank without a part in a program waits for those that have one
_DUMP_TIME = 1.0  # seconds that ranks get to write down, or to read, where each one stands
_PATIENCE = 5.0  # seconds after which a rank says for whom it waits
_numbers = itertools.count(1)
_store: Store | None = None
_present: list[tuple[str, dict[str, Any]]] = []
"""By rank: its node, and what that machine is."""
_noted = _busy = False


def is_here() -> bool:
    """Say whether this process is a rank that torchrun (or a launcher like it) started."""
    return _is_marked() and "LABKIT_RANK" not in os.environ and not _in_a_notebook()


def note_leftovers() -> None:
    """Say once that a notebook kernel has inherited torchrun's variables, if it has."""
    global _noted
    if _is_marked() and _in_a_notebook() and not _noted:
        _noted = True
        print(
            f"labkit: {', '.join(_MARKS)} are set, but a notebook is no rank of torchrun: "
            "launch starts ranks of its own.",
            file=sys.stderr,
        )


def _is_marked() -> bool:
    return os.environ.keys() >= set(_MARKS)


def _in_a_notebook() -> bool:
    ipython = sys.modules.get("IPython")
    return ipython is not None and hasattr(ipython.get_ipython(), "kernel")


def default_backend() -> str:
    """Return what carries tensors: gloo, and where this rank has a GPU, NCCL beside it."""
    import torch

    local_rank = int(os.environ.get("LOCAL_RANK") or os.environ.get("RANK", "0"))
    return "cpu:gloo,cuda:nccl" if torch.cuda.device_count() > local_rank else "gloo"


def run(
    program: Callable[[], Any],
    *,
    world_size: int | None,
    backend: str | None,
    fabric: object,
    timeout: float,
    init: bool,
    checks: bool,
    threads: int,
) -> list[Any]:
    """Run the program on the first ``world_size`` ranks; every rank gets all results.

    Each call makes a fresh default group. The processes stay the same, unlike in a plain `launch`.

    Raises:
        ValueError: If more ranks are asked for than torchrun started, or a fabric is.
        RuntimeError: If the job has a default group of its own, which stays as it is.
        LaunchError: On the ranks that did not fail, or only because another one did: names it.
        LaunchTimeout: On ranks that had finished when others had not in time. Those cannot be taken
            out of what they hang in: one prints the case file, and they end with status 1, which
            makes torchrun end the job.
    """
    import torch
    import torch.distributed as dist

    global _busy
    rank, there = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    world_size = there if world_size is None else world_size
    if _busy:
        raise RuntimeError("Ranks cannot start ranks: call launch outside the program.")
    if dist.is_initialized():
        raise RuntimeError(
            "This job has made its default group already, and launch would need one of its own. "
            "Call your function directly: time_calls, wire.meter, sched, CallLog and Tracer work "
            "inside any job. Or call launch before init_process_group."
        )
    if fabric is not None:
        raise ValueError("a fabric needs ranks of its own; it cannot hold those of torchrun.")
    if world_size > there:
        raise ValueError(f"world_size={world_size}, but {there} ranks were started.")
    store = _shared_store(rank, there)
    one = _Call(dist.PrefixStore(f"labkit-{next(_numbers)}", store), rank, world_size, timeout)
    failure, patience = None, _BUSY
    if rank < world_size:
        backend = backend or default_backend()
        saved = os.environ["WORLD_SIZE"], torch.get_num_threads()
        _busy, os.environ["WORLD_SIZE"] = True, str(world_size)
        torch.set_num_threads(threads)
        compare_calls(checks)
        try:
            failure = one.run(program, backend if init else None)
        finally:
            _busy, os.environ["WORLD_SIZE"] = False, saved[0]
            torch.set_num_threads(saved[1])
            dist.set_debug_level_from_env()
        patience = _GRACE + (0 if failure else min(timeout, _BUSY))
    return one.conclude(failure, patience, there)


@dataclass(frozen=True, slots=True)
class _Call:
    """One call of `launch`, as one rank sees it."""

    store: Store
    rank: int
    world_size: int
    timeout: float

    def run(self, program: Callable[[], Any], backend: str | None) -> BaseException | None:
        """Run the program; leave (0, its value) or (place among the failures, text) to all."""
        import torch
        import torch.distributed as dist

        store, failure = self.store, None
        alarm = threading.Timer(min(self.timeout, threading.TIMEOUT_MAX), self.give_up)
        alarm.daemon = True
        try:
            if backend and "nccl" in backend:
                torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", self.rank)))
            if backend:
                join(backend, dist.PrefixStore("group", store), self.rank, self.world_size)
            store.add("joined", 1)
            alarm.start()
            blob = cloudpickle.dumps((0, program()))
        except Exception as error:
            order = store.add("failures", 1)  # before the others lose their connection and fail too
            if dist.is_initialized():
                _poll(lambda: store.add("joined", 0) == self.world_size)  # none still connects
                dist.destroy_process_group()  # so that those who wait for this rank fail
            blob = cloudpickle.dumps((order, f"{type(error).__name__}: {error}"))
            failure = error
        finally:
            alarm.cancel()
        store.set(f"result-{self.rank}", blob)
        if store.add("done", 1) == self.world_size:
            store.set("over", "done")
        return failure

    def conclude(self, failure: BaseException | None, patience: float, there: int) -> list[Any]:
        """Wait for everybody; return all results or raise what went wrong."""
        import torch.distributed as dist

        store = self.store
        with contextlib.suppress(RuntimeError):  # torch's DistStoreError: they are named below
            store.wait(["over"], timedelta(seconds=patience))
        results = self.results()
        case = self.case() if store.check(["late"]) else None
        if dist.is_initialized() and case is None:  # who hangs goes on hanging until it is ended
            dist.destroy_process_group()
        store.add("read", 1)
        if self.rank == 0:  # the store may live in this process: outlast the others' reading
            _poll(lambda: store.add("read", 0) >= there - self.world_size + len(results))
        failed = [(order, other) for other, (order, _) in results.items() if order]
        if failed:
            _, first = min(failed)
            _, text = results[first]
            if failure is None or text != results[self.rank][1]:
                raise LaunchError(f"rank {first} of {self.world_size} raised {text}") from failure
            raise failure
        if case is not None:
            raise LaunchTimeout(self.timeout, case)
        if missing := sorted(set(range(self.world_size)) - set(results)):
            raise LaunchError(
                f"ranks {missing} of {self.world_size} left no result: did their node die?"
            )
        return [value for _, value in results.values()]

    def results(self) -> dict[int, tuple[int, Any]]:
        """Return what each rank has left so far, by rank."""
        keys = {rank: f"result-{rank}" for rank in range(self.world_size)}
        check, get = self.store.check, self.store.get
        return {rank: pickle.loads(get(key)) for rank, key in keys.items() if check([key])}

    def give_up(self) -> None:
        """End this rank, which is late. The first that is late tells where every rank stands."""
        with tempfile.TemporaryFile("w+") as file:
            faulthandler.dump_traceback(file, all_threads=True)
            file.seek(0)
            stack = file.read()
        store = self.store.clone()  # the program may be waiting with the other one locked
        store.set(f"case-{self.rank}", json.dumps([stack, calls()]))
        if store.add("late", 1) == 1:
            time.sleep(_DUMP_TIME)
            case = _Call(store, self.rank, self.world_size, self.timeout).case()
            text = LaunchTimeout(self.timeout, case)
            print(f"labkit.ranks.errors.LaunchTimeout: {text}", file=sys.stderr, flush=True)
            store.set("over", "late")
        else:
            _poll(lambda: store.check(["over"]))
        time.sleep(_DUMP_TIME)  # torchrun ends the others as soon as one has ended
        os._exit(1)

    def case(self) -> CaseFile:
        """Return where every rank stands, from what they left."""
        cases, results = [], self.results()
        for rank in range(self.world_size):
            order, _ = results.get(rank, (None, None))
            state = {None: "running", 0: "finished"}.get(order, "raised")
            there = self.store.check([f"case-{rank}"])
            written = json.loads(self.store.get(f"case-{rank}")) if there else ()
            cases.append(RankCase.read(rank, state, *written))
        return CaseFile(tuple(cases))


def _poll(done: Callable[[], bool], seconds: float = _GRACE) -> bool:
    """Wait until it is done, at most so long; say whether it is. A store's own wait logs C++."""
    deadline = time.monotonic() + seconds
    while not done():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    return True


def _shared_store(rank: int, world_size: int) -> Store:
    """Connect to the store that all ranks share; the first time, call the roll."""
    global _store, _present
    if _store is None:
        import torch.distributed as dist

        wait = float(os.environ.get(JOIN_TIMEOUT, "120"))
        note = threading.Timer(_PATIENCE, _say_for_whom, [world_size, wait])
        note.start()
        try:
            # Rank 0 makes the store, unless torchrun's agent has.
            agent = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
            deadline = time.monotonic() + wait
            store = _connect(world_size, deadline, make=rank == 0 and not agent)
            answers = dist.PrefixStore("labkit-roll-call", store)
            _present = _roll_call(answers, rank, world_size, deadline)
        finally:
            note.cancel()
        _store = store
    return _store


def _say_for_whom(world_size: int, wait: float) -> None:
    print(
        f"labkit: {', '.join(_MARKS)} are set, so launch waits for the {world_size} ranks of a "
        f"job, for {wait:g} s. Is this none? Unset them, and launch starts ranks of its own.",
        file=sys.stderr,
    )


def _connect(world_size: int, deadline: float, *, make: bool = False) -> Store:
    import torch.distributed as dist

    address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    while not make:  # torch's own attempts log a C++ stack when nobody answers
        try:
            socket.create_connection(address, max(deadline - time.monotonic(), 0.1)).close()
            break
        except OSError as error:
            if time.monotonic() > deadline:
                text = f"nobody answers at {address} ({error.strerror or error})"
                raise _too_few(text, world_size) from None
            time.sleep(0.1)
    return dist.TCPStore(*address, is_master=make, multi_tenant=True, wait_for_workers=False)


def _roll_call(
    store: Store, rank: int, world_size: int, deadline: float
) -> list[tuple[str, dict[str, Any]]]:
    """Say what this rank runs on; return what all ranks say, by rank.

    Raises:
        LaunchError: Ranks did not answer in time; names them.
    """
    node = os.environ.get("GROUP_RANK") or os.environ.get("SLURM_NODEID") or socket.gethostname()
    store.set(str(rank), json.dumps([node, asdict(Machine.here())]))
    keys = [str(other) for other in range(world_size)]
    if not _poll(lambda: store.check(keys), deadline - time.monotonic()):
        missing = [other for other, key in enumerate(keys) if not store.check([key])]
        raise _too_few(f"ranks {missing} are missing", world_size)
    return [json.loads(store.get(key)) for key in keys]


def _too_few(text: str, world_size: int) -> LaunchError:
    return LaunchError(
        f"{world_size} ranks were announced, but {text} in time. Is every node started, with the "
        f"same address and port, and can it reach them? {JOIN_TIMEOUT}=600 waits longer. "
        f"If torchrun did not start this process: unset {', '.join(_MARKS)}."
    )


@dataclass(frozen=True, slots=True)
class Node:
    """A machine of several, and which ranks ran there. It has no name: records are passed on."""

    ranks: tuple[int, ...]
    machine: Machine

    @classmethod
    def from_dict(cls, fields: dict[str, Any]) -> Node:
        """Rebuild it from `dataclasses.asdict`."""
        return cls(tuple(fields["ranks"]), Machine.from_dict(fields["machine"]))


def nodes() -> tuple[Node, ...]:
    """Return the nodes by their first rank; none before the first `run`, or without torchrun.

    A node is what torchrun or Slurm calls so; without them, a host.
    """
    ranks: dict[str, list[int]] = {}
    for rank, (node, _) in enumerate(_present):
        ranks.setdefault(node, []).append(rank)
    return tuple(Node(tuple(own), Machine.from_dict(_present[own[0]][1])) for own in ranks.values())
