"""Programs as the field writes them, in `launch` as they are."""

import atexit
import logging
import os
import random
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from contextlib import nullcontext
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from labkit import LaunchTimeout, RankDied, RankError, launch
from labkit.ranks import rank
from tests.ranks.nodes import environment, python

pytestmark = pytest.mark.slow

OWN_CLASSES = """
import functools, os, torch, torch.distributed as dist
import torch.multiprocessing as mp
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from torch.distributed import rpc
from torch.utils.data import DataLoader
from labkit import launch

@dataclass
class Stats:
    rank: int

class Power:
    def __init__(self, exponent):
        self.exponent = exponent
    def __call__(self, x):
        return x ** self.exponent
    @functools.cached_property
    def half(self):
        return self.exponent / 2

@functools.cache
def factorial(n):
    return n * factorial(n - 1) if n else 1

def square(x):
    return x * x

def gather():
    stats = [None] * dist.get_world_size()
    dist.all_gather_object(stats, Stats(dist.get_rank()))
    return stats

def save():
    torch.save(Stats(7), f"saved-{dist.get_rank()}")
    return type(torch.load(f"saved-{dist.get_rank()}", weights_only=False)) is Stats

def fork_pool():
    with mp.get_context("fork").Pool(2) as pool:
        return pool.map(square, [1, 2, 3])

def spawned_workers():
    workers = {"num_workers": 1, "multiprocessing_context": "spawn"}
    return sum(DataLoader(range(4), batch_size=None, collate_fn=square, **workers))

def call_remotely():
    rank = int(os.environ["RANK"])
    rpc.init_rpc(f"worker{rank}", rank=rank, world_size=2)
    answer = rpc.rpc_sync(f"worker{1 - rank}", square, (3,))
    rpc.shutdown()
    return answer

if __name__ == "__main__":
    assert launch(gather, world_size=2) == [[Stats(0), Stats(1)]] * 2
    assert launch(save, world_size=2) == [True, True]
    assert torch.load("saved-0", weights_only=False) == Stats(7)
    assert launch(fork_pool, world_size=1) == [[1, 4, 9]]
    assert launch(spawned_workers, world_size=1) == [14]
    assert launch(call_remotely, world_size=2, init=False) == [9, 9]
    assert launch(functools.partial(square, 5), world_size=1) == [25]
    assert launch(Power(3), 2, world_size=1) == [8]
    assert launch(lambda: (factorial(4), Power(3).half), world_size=1) == [(24, 1.5)]
    with ProcessPoolExecutor(1, mp_context=mp.get_context("spawn")) as pool:
        assert pool.submit(launch, gather, world_size=2).result() == [[Stats(0), Stats(1)]] * 2
    print("all found")
"""


def test_a_programs_own_classes_are_there_by_name(tmp_path):
    (tmp_path / "train.py").write_text(OWN_CLASSES)
    done = python("train.py", cwd=tmp_path)
    assert done.stdout == "all found\n", done.stderr


def test_a_program_that_makes_its_own_group_is_told_how():
    with pytest.raises(ValueError, match="twice") as caught:
        launch(lambda: dist.init_process_group("gloo"), world_size=2)
    assert "launch(..., init=False)" in "".join(caught.value.__notes__)


def test_a_group_that_is_destroyed_at_once_has_been_joined_by_all():
    for _ in range(4):
        launch(dist.destroy_process_group, world_size=6)


def test_sharded_and_tensor_parallel_programs(tmp_path):
    def train():  # what it imports takes each process that collects tests two seconds
        import torch.distributed.checkpoint as dcp
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard
        from torch.distributed.tensor import Shard, distribute_tensor

        mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        sharded = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 2))
        fully_shard(sharded, mesh=mesh)
        sharded(torch.randn(3, 4)).sum().backward()
        dcp.save({"model": sharded.state_dict()}, checkpoint_id=tmp_path / "checkpoint")
        return distribute_tensor(torch.arange(8.0), mesh, [Shard(0)]).full_tensor().sum().item()

    assert launch(train, world_size=2) == [28, 28]
    assert (tmp_path / "checkpoint" / ".metadata").exists()


def test_random_numbers_differ_by_rank_and_by_launch():
    def draw():
        return torch.rand(1).item(), random.random(), np.random.rand()

    drawn = [draws for _ in range(2) for draws in launch(draw, world_size=3)]
    for column in zip(*drawn, strict=True):
        assert len(set(column)) == 6


def test_files_of_one_step_are_there_for_the_next(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))

    def cache():
        from torch._inductor.runtime.cache_dir_utils import cache_dir

        Path(tempfile.gettempdir(), "model.checkpoint").write_text("step 1")
        return cache_dir()

    [place] = launch(cache, world_size=1)
    assert launch(cache, world_size=1) == [place] and place.startswith(str(tmp_path))
    assert (tmp_path / "model.checkpoint").read_text() == "step 1"


@pytest.mark.parametrize("fails", [False, True])
def test_a_rank_ends_in_order(tmp_path, fails):
    def program():
        logging.getLogger().addHandler(logging.FileHandler(tmp_path / "log"))
        logging.warning("logged")
        global kept
        kept = (tmp_path / "open").open("w")
        kept.write("not flushed")
        atexit.register((tmp_path / "exit").write_text, "handled")

        def late():
            time.sleep(0.2)
            (tmp_path / "thread").write_text("joined")

        threading.Thread(target=late).start()
        if fails:
            raise LookupError("all the same")

    with pytest.raises(LookupError, match="all the same") if fails else nullcontext():
        launch(program, world_size=1)
    written = {path.name: path.read_text().strip() for path in tmp_path.iterdir()}
    whole = {"log": "logged", "open": "not flushed", "exit": "handled", "thread": "joined"}
    assert written == whole


def test_a_thread_that_never_ends_is_named_and_does_not_hold_the_launch(capsys):
    def program():
        rank.END = 0.5  # of this process: it is 5 s
        threading.Thread(target=time.sleep, args=(60,), name="server").start()

    launch(program, world_size=1)
    assert "server did not end within 0.5 s" in capsys.readouterr().err


def test_the_whole_chain_of_causes_arrives():
    def program():
        try:
            try:
                Path("/no/such/checkpoint").read_text()
            except OSError as error:
                raise RuntimeError("cannot resume") from error
        except RuntimeError:
            raise KeyError("step")  # noqa: B904  (what was handled comes along too)

    with pytest.raises(KeyError) as caught:
        launch(program, world_size=2)
    handled = caught.value.__context__
    assert str(handled) == "cannot resume"
    assert handled.__cause__.filename == "/no/such/checkpoint"
    text = str(handled.__cause__.__cause__)
    assert 'Path("/no/such/checkpoint").read_text()' in text and "FileNotFoundError" in text


def test_the_first_error_of_a_group_comes_with_its_place():
    def program():
        try:
            raise LookupError("in a task")
        except LookupError as error:
            raise ExceptionGroup("tasks", [error]) from None

    with pytest.raises(ExceptionGroup) as caught:
        launch(program, world_size=1)
    [error] = caught.value.exceptions
    assert 'raise LookupError("in a task")' in str(error.__cause__)


def unshared(namespace, command, **options):
    """Run a command in namespaces of its own, of which one is asked for."""
    whole = ["unshare", "--user", "--map-root-user", namespace, *command]
    done = subprocess.run(whole, capture_output=True, text=True, **options)
    if "unshare:" in done.stderr or "mount:" in done.stderr:
        pytest.skip("no namespaces, or no mounts, here")
    return done


@pytest.mark.skipif(not Path("/dev/shm").exists(), reason="no folder in memory")
def test_large_values_spill_to_disk_where_memory_is_small(tmp_path, nothing_left):
    """A small /dev/shm, as in a container, only smaller."""
    script = """
        import torch
        from labkit import launch
        big = torch.arange(1_000_000, dtype=torch.float32)
        import pathlib, tempfile
        def left():
            return list(pathlib.Path(tempfile.gettempdir()).glob("labkit-*"))
        def program():
            return big * 2, [path.stat().st_mode & 0o777 for path in left()]
        [(result, modes)] = launch(program, world_size=1)
        assert torch.equal(result, big * 2)
        assert modes == [0o700], "others may look into what lies on disk"
        print(left())
    """
    (tmp_path / "small.py").write_text(textwrap.dedent(script))
    mounted = f"mount -t tmpfs -o size=4k none /dev/shm && {sys.executable} small.py"
    variables = environment(TMPDIR=str(tmp_path))
    done = unshared("--mount", ["sh", "-c", mounted], env=variables, cwd=tmp_path)
    assert done.stdout == "[]\n", done.stderr


def test_a_part_of_a_tensor_travels_alone_and_large_ones_whole():
    rows = torch.arange(3_000_000).reshape(3, -1)

    def program(scale):
        assert rows.untyped_storage().nbytes() == 24_000_000
        rows.untyped_storage().resize_(0)  # its own, as FSDP wants
        big = torch.ones(1_000_000)
        return big[:3] * 1, big[5:8], np.ones(300_000) * scale

    [(copied, part, array)] = launch(program, scale=2, world_size=1)
    assert part.tolist() == [1.0] * 3 and part.untyped_storage().nbytes() == 12
    assert array.flags.writeable and array.sum() == 600_000 and copied.tolist() == [1.0] * 3


def test_what_cannot_be_rebuilt_is_named_with_rank_and_type():
    def program():
        model = DistributedDataParallel(torch.nn.Linear(1, 1))
        return model if dist.get_rank() == 1 else None

    message = r"rank 1 returned a torch.*DistributedDataParallel that cannot be rebuilt"
    with pytest.raises(TypeError, match=rf"{message}[\s\S]*state_dict"):
        launch(program, world_size=2)


def test_the_rank_that_is_missing_at_a_monitored_barrier_is_named():
    def program():
        if dist.get_rank() != 1:
            dist.monitored_barrier(timeout=timedelta(seconds=0.2))
        time.sleep(20)

    with pytest.raises(RuntimeError, match="Rank 1 failed to pass monitoredBarrier"):
        launch(program, world_size=4)


def test_a_progress_bar_moves_while_it_runs(monkeypatch):
    def program():
        for state in ("\r0%", "\r50%", "\r100%", "\n", "0%\r", "50%\r"):  # it begins or ends it
            print(state, end="", file=sys.stderr, flush=True)
            time.sleep(0.1)
        print("ended", file=sys.stderr)

    def write(text):
        seen.append((time.monotonic(), text))

    seen = []
    monkeypatch.setattr(sys, "stderr", SimpleNamespace(write=write, flush=lambda: None))
    launch(program, world_size=1)
    text = "".join(text for _, text in seen)
    first, second = "[rank 0] 0%\r[rank 0] 50%\r", "[rank 0] 100%\r[rank 0] 100%\n"
    assert text == f"{first}{second}{first}[rank 0] ended\n"
    assert seen[-1][0] - seen[0][0] > 0.25, "it was there before the end"


def test_tensors_of_young_dtypes_travel_there_and_back():
    names = ["uint16", "uint32", "uint64", "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu"]
    sent = [torch.tensor([1, 2, 4, 8]).to(getattr(torch, name)) for name in names]
    [back] = launch(lambda: [(x, x[1:3], x.reshape(2, 2).t()) for x in sent], world_size=1)
    for x, (whole, part, turned) in zip(sent, back, strict=True):
        assert whole.dtype == part.dtype == x.dtype
        assert whole.double().tolist() == [1, 2, 4, 8] and part.double().tolist() == [2, 4]
        assert turned.double().tolist() == [[1, 4], [2, 8]]


def test_who_asks_the_keyboard_is_told_that_there_is_none():
    """As bdb.BdbQuit, which IPython swallows, a cell ended in silence."""
    with pytest.raises(RankError, match=r"no keyboard\. Print what you want to see"):
        launch(lambda: breakpoint(), world_size=2)
    with pytest.raises(EOFError) as caught:
        launch(input, world_size=1)
    assert "no keyboard" in "".join(caught.value.__notes__)


def test_a_child_that_comes_back_from_the_program_is_not_the_rank(tmp_path, capsys):
    def program():
        if (pid := os.fork()) == 0:
            (tmp_path / f"{dist.get_rank()}").write_text("was here")
            if dist.get_rank() == 1:
                raise LookupError("only in the child")
            return "child"
        return "parent", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    assert launch(program, world_size=2) == [("parent", 0), ("parent", 1)]
    assert {path.name for path in tmp_path.iterdir()} == {"0", "1"}
    assert "[rank 1] LookupError: only in the child" in capsys.readouterr().err


def test_a_long_line_takes_no_square_of_its_length(capsys):
    start = time.monotonic()
    launch(lambda: print("x" * 30_000_000), world_size=1)
    assert time.monotonic() - start < 5
    assert len(capsys.readouterr().out) == len("[rank 0] \n") + 30_000_000


def test_calls_that_do_not_fit_together_are_answered_with_checks():
    def unlike_sizes():
        dist.all_reduce(torch.ones(900 + dist.get_rank()))

    def unlike_calls():
        dist.barrier() if dist.get_rank() else dist.all_reduce(torch.ones(3))

    with pytest.raises(RankDied, match=r"checks=True\) compares them"):
        launch(unlike_sizes, world_size=2)
    with pytest.raises(LaunchTimeout, match=r"checks=True\) compares them"):
        launch(unlike_calls, world_size=2, timeout=1)
    with pytest.raises(LaunchTimeout, match=r"^(?![\s\S]*checks)"):
        launch(lambda: dist.get_rank() or dist.barrier(), world_size=2, timeout=1)


def test_a_machine_without_loopback_is_told_to_switch_it_on():
    script = "from labkit import launch; launch(int, world_size=2)"
    done = unshared("--net", [sys.executable, "-c", script], env=environment())
    assert "ip link set lo up" in done.stderr
