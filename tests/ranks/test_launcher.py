"""The launcher at its best: results, circumstances, output, and input that it refuses."""

import io
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist

from labkit import Launcher, LaunchTimeout, RankDied, launch
from labkit.ranks import launcher

TOO_MANY = {"world_size": torch.cuda.device_count() + 1, "backend": "nccl"}


def rank_squared():
    return dist.get_rank() ** 2


@pytest.mark.parametrize("world_size", [1, 3])
def test_results_come_by_rank(nothing_left, world_size):
    assert launch(rank_squared, world_size=world_size) == [r**2 for r in range(world_size)]


def test_circumstances_are_those_of_torchrun(monkeypatch, tmp_path):
    monkeypatch.setenv("FROM_THE_CELL", "yes")
    monkeypatch.chdir(tmp_path)

    def program():
        names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "FROM_THE_CELL")
        return [os.environ[name] for name in names], str(Path.cwd()), torch.get_num_threads()

    results = launch(program, world_size=2)
    assert results == [([str(r), str(r), "2", "2", "yes"], str(tmp_path), 1) for r in (0, 1)]
    monkeypatch.setattr(sys, "argv", ["train.py", "--epochs=3"])
    assert launch(lambda: sys.argv, world_size=1) == [sys.argv]
    assert launch(torch.get_num_threads, threads=2, world_size=2) == [2, 2]


def test_every_launch_starts_clean():
    def program():
        before = getattr(torch, "left_by_a_launch", None)
        torch.left_by_a_launch = True
        return before

    for _ in range(2):
        assert launch(program, world_size=2) == [None, None]


def test_nothing_listens_beyond_loopback():
    def program():
        dist.barrier()
        tables = [Path(f"/proc/self/net/{name}").read_text() for name in ("tcp", "tcp6")]
        own = [link.readlink().name for link in Path("/proc/self/fd").iterdir() if link.exists()]
        rows = [line.split() for table in tables for line in table.splitlines()[1:]]
        return [row[1] for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in own]

    for listening in launch(program, world_size=2):
        assert all(address.startswith("0100007F:") for address in listening), listening


def test_output_arrives_line_by_line_with_the_rank(capsys):
    def program():
        print("first\nsecond")
        print("to stderr", file=sys.stderr)
        print("no newline", end="")

    launch(program, world_size=2)
    out, err = capsys.readouterr()
    for rank in (0, 1):
        lines = [line for line in out.splitlines() if line.startswith(f"[rank {rank}]")]
        assert lines == [f"[rank {rank}] {text}" for text in ("first", "second", "no newline")]
        assert f"[rank {rank}] to stderr\n" in err


def test_threads_may_launch_too():
    with ThreadPoolExecutor(3) as threads:
        results = [*threads.map(lambda n: launch(rank_squared, world_size=n), (1, 2, 3))]
    assert results == [[0], [0, 1], [0, 1, 4]]


def generator():
    yield 1


async def coroutine():
    return 1


SENSELESS = [
    (rank_squared, {"world_size": 0}, "world_size must be .* got 0"),
    (rank_squared, {"world_size": True}, "world_size must be .* got True"),
    (rank_squared, {"timeout": "soon"}, "timeout must be"),
    (rank_squared, {"timeout": 0}, "seconds above 0, got 0"),
    (rank_squared, {"timeout": None}, r'float\("inf"\)'),
    (rank_squared, TOO_MANY, f"needs {TOO_MANY['world_size']} GPUs; this machine has"),
    (rank_squared, {"backend": "mpi"}, 'must be "gloo" or "nccl", got \'mpi\''),
    (generator, {}, "generator function"),
    (coroutine, {}, "coroutine function"),
    (4, {}, "needs a function"),
    (lambda rank, **options: rank, {}, r"'rank'.* asks dist\.get_rank\(\)"),
    (lambda rank, world_size: 0, {"rank": 0, "world_size": 2}, "world_size= is an option of l"),
    (rank_squared, {"wrld_size": 4}, r"Did you mean world_size=\?"),
    (rank_squared, {"nprocs": 4}, r"Did you mean world_size=\?"),
    (rank_squared, {"colour": 1}, r"argument 'colour'\.$"),
]


@pytest.mark.parametrize("program, given, says", SENSELESS)
def test_what_makes_no_sense_is_refused(program, given, says):
    with pytest.raises((TypeError, ValueError), match=says):
        launch(program, **given)


def patient(*, timeout=1.0, output="model.pt"):
    return timeout, output


def test_an_option_that_the_program_has_too_is_never_taken_silently():
    for given in ({"timeout": 9}, {"output": [0]}, {"output": "best.pt", "timeout": 9}):
        with pytest.raises(TypeError, match=r"an option of launch and a parameter of patient. Say"):
            launch(patient, **given)
    assert launch(patient, world_size=1) == [(1.0, "model.pt")], "nothing was given"
    assert Launcher(world_size=1, timeout=9)(patient, output="best.pt") == [(1.0, "best.pt")]
    with pytest.raises(TypeError, match=r"stand in its own brackets: Launcher\(world_size="):
        Launcher()(patient, world_size=2)


def test_a_launch_inside_a_rank_is_refused_and_numbers_of_numpy_are_numbers():
    with pytest.raises(RuntimeError, match="Ranks cannot start ranks"):
        launch(lambda: launch(rank_squared), world_size=np.int64(2), timeout=np.float32(50))


def test_output_of_chosen_ranks(capsys):
    launch(lambda: print("here"), world_size=3, output=[1])
    assert capsys.readouterr().out == "[rank 1] here\n"
    launch(print, "not shown", world_size=2, output=())
    assert capsys.readouterr() == ("", "")

    def die():
        print("to stderr", file=sys.stderr)
        os._exit(3)

    with pytest.raises(RankDied) as caught:
        launch(lambda: dist.get_rank() and die(), world_size=2, output=[0])
    assert caught.value.stderr == ["to stderr"], "it is known though it was not shown"


class Page(io.StringIO):
    """A screen that counts how often something is written to it, and takes its time for each."""

    def __init__(self, pause=0.0):
        super().__init__()
        self.pause, self.writes = pause, 0

    def write(self, text):
        self.writes += bool(text)  # print also writes its empty end
        time.sleep(self.pause)
        return super().write(text)


def count(lines):
    for line in range(lines):
        print("line", line)


def test_a_chatty_program_takes_few_writes(monkeypatch):
    """In a notebook each is a message, and a server passes on 1000 a second."""
    monkeypatch.setattr(sys, "stdout", page := Page())
    start = time.monotonic()
    launch(count, 5000, world_size=4)
    assert page.writes <= 2 + (time.monotonic() - start) / launcher._MOMENT
    lines = page.getvalue().splitlines()
    for rank in range(4):
        own = [line for line in lines if line.startswith(f"[rank {rank}] ")]
        assert own == [f"[rank {rank}] line {number}" for number in range(5000)]


@pytest.mark.slow
def test_a_timeout_says_when_it_was_spent_on_showing_output(monkeypatch):
    monkeypatch.setattr(sys, "stdout", Page(pause=0.5))
    with pytest.raises(LaunchTimeout, match=r"after 2 s, \S+ s of which went into showing what"):
        launch(count, 10**9, world_size=1, timeout=2)


@pytest.mark.parametrize("start, name", [(launch, "launch"), (Launcher(), "__call__")])
def test_a_traceback_ends_in_launch(start, name):
    with pytest.raises(ZeroDivisionError) as caught:
        start(lambda: 1 / 0)
    assert [frame.name for frame in caught.traceback][1:] == [name]
    assert str(caught.traceback[-1].statement).strip() == "raise outcome"


def test_a_deleted_working_directory_is_named(monkeypatch, tmp_path):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(FileNotFoundError, match=r"working directory.* was deleted"):
        launch(rank_squared, world_size=1)
