"""Type checkers see what labkit exports: right uses pass, wrong ones are refused."""

import re

import pytest

from tests.ranks.nodes import ROOT, python

RIGHT = """
import labkit
from labkit import CallLog, Fabric, Launcher, LaunchTimeout, RankDied, Record, Timeline, Tracer
from labkit import Kind, launch, sched, slowest, summarize, time_calls, wire

def total(scale: int, shift: int = 0) -> float:
    return scale + shift

a: list[float] = launch(total, 10, shift=1, world_size=4, fabric=Fabric.star(2, "1gbit"))
b: list[float] = labkit.launch(total, 10, env={"TORCH_LOGS": "dynamo", "OLD": None}, output=[0])
c: list[float] = Launcher(world_size=2, output=[0])(total, 1, shift=5)
d: float = summarize(slowest([time_calls(lambda: None)])).median
with wire.meter() as meter, sched.watch() as usage, CallLog() as log:
    e: float = usage.waiting + len(log.calls) + Tracer.aligned().trace().rank
try:
    launch(total, 1)
except RankDied as died:
    rank: int = died.rank
except LaunchTimeout as late:
    ranks: list[int] = late.case.running
"""
WRONG = """
import labkit
from labkit import Fabric, Launcher, launch, summarize
launch(len, "abc", world_size="4")
launch(len, "abc", timeout="soon")
launch(len, "abc", env={"A": 1})
launch(len, "abc", output="logs")
launch(len, "abc", backend="mpi")
launch(4)
launch()
Launcher(wrld_size=2)
Launcher(world_size="2")
Launcher()(len, "abc", world_size=2)
Launcher()(len, 3)
labkit.lunch
summarize("abc")
Fabric.star(hosts="2", rate="1gbit")
x: list[str] = launch(len, "abc")
"""


@pytest.mark.slow
def test_mypy_agrees(tmp_path):
    pytest.importorskip("mypy")
    (tmp_path / "right.py").write_text(RIGHT.strip())
    (tmp_path / "wrong.py").write_text(WRONG.strip())
    config = ("--config-file", str(ROOT / "pyproject.toml"))
    config += ("--cache-dir", str(ROOT / ".mypy_cache"))  # what was looked at already is kept
    command = ("-m", "mypy", *config, "right.py", "wrong.py")
    said = python(*command, cwd=tmp_path, timeout=110, MYPYPATH=str(ROOT)).stdout
    errors = re.findall(r"^(\w+).py:(\d+): error", said, re.M)
    lines = range(3, len(WRONG.strip().splitlines()) + 1)
    assert errors == [("wrong", str(line)) for line in lines], said
