"""The field guide's checkup finds the late rank of a DDP job, alone and under torchrun."""

import runpy
import sys

import torch
from pytest import approx, mark

from labkit import launch
from tests.ranks.nodes import ROOT, python

pytestmark = mark.slow

SCRIPT = "examples/checkup.py"
TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=4"]


def names_the_late_rank(shown, world_size):
    _, names, _, *lines = shown[shown.index("ms per step") :].splitlines()
    names = [name.strip() for name in names.split("  ") if name.strip()]
    rows = [dict(zip(names, map(float, x.split()), strict=False)) for x in lines[:world_size]]
    assert max(rows, key=lambda row: row["delayed all by"])["rank"] == 1
    assert min(rows, key=lambda row: row["wait ms"])["rank"] == 1, "the smallest timer is the late"
    assert all(row["exposed ms"] > 0 for row in rows)


def holds(shown):
    """Tell the bytes of the steps, and who is late."""
    assert "no span covers" not in shown and "one small call" in shown
    names_the_late_rank(shown, 4)
    if sys.platform == "linux":
        sent = map(float, shown.splitlines()[-1].partition("by rank:")[2].split())
        nbytes = 4 * 20 * (224 * 224 + 224)
        assert [*sent] == approx([1.5 * nbytes / 1e6] * 4, rel=0.02), "a ring sends 1.5 S"


@mark.timed
def test_it_counts_its_bytes_and_names_the_late_rank(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [SCRIPT])
    runpy.run_path(str(ROOT / SCRIPT), run_name="__main__")
    holds(capsys.readouterr().out)


@mark.timed
@mark.exhaustive
def test_it_does_so_under_torchrun(tmp_path):
    done = python(*TORCHRUN, str(ROOT / SCRIPT), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    holds(done.stdout)


def test_it_warns_of_calls_that_no_span_covers(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(ROOT))
    checkup = runpy.run_path(str(ROOT / SCRIPT))
    examine = checkup["examine"]

    def unseen(tracer):
        layers = [torch.nn.Linear(224, 224) for _ in range(2)]
        return torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(*layers))

    examine.__globals__["prepare"] = unseen
    checkup["show"](launch(examine, world_size=2))
    assert "rank 1: no span covers 0.40 MB of calls" in capsys.readouterr().out
