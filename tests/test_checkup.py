"""The field guide's checkup finds the late rank of a DDP job, alone and under torchrun."""

import runpy
import sys

import torch
from pytest import approx, fixture, mark, param

from labkit import launch
from tests.ranks.nodes import ROOT, python

pytestmark = mark.slow

SCRIPT = "examples/checkup.py"
TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=4"]
STARTERS = [[], param(TORCHRUN, marks=[mark.timed, mark.exhaustive])]


def names_the_late_rank(shown, world_size):
    _, names, _, *lines = shown[shown.index("ms per step") :].splitlines()
    names = [name.strip() for name in names.split("  ") if name.strip()]
    rows = [dict(zip(names, map(float, x.split()), strict=False)) for x in lines[:world_size]]
    assert max(rows, key=lambda row: row["delayed all by"])["rank"] == 1
    assert min(rows, key=lambda row: row["wait ms"])["rank"] == 1, "the smallest timer is the late"
    assert all(row["exposed ms"] > 0 for row in rows)


@mark.parametrize("starter", STARTERS, ids=["alone", "torchrun"])
def test_the_checkup_counts_its_bytes(starter, tmp_path):
    done = python(*starter, str(ROOT / SCRIPT), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "no span covers" not in done.stdout
    if starter:  # alone, the next test does
        names_the_late_rank(done.stdout, 4)
    if sys.platform == "linux":
        sent = map(float, done.stdout.splitlines()[-1].partition("by rank:")[2].split())
        nbytes = 4 * 20 * (224 * 224 + 224)
        assert [*sent] == approx([1.5 * nbytes / 1e6] * 4, rel=0.02), "a ring sends 1.5 S"


@fixture
def checkup(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(ROOT))
    return runpy.run_path(str(ROOT / SCRIPT))


@mark.timed
def test_it_names_the_late_rank(checkup, capsys):
    checkup["show"](launch(checkup["examine"], world_size=3))
    names_the_late_rank(shown := capsys.readouterr().out, 3)
    assert "one small call" in shown


def test_it_warns_of_calls_that_no_span_covers(checkup, capsys):
    examine = checkup["examine"]

    def unseen(tracer):
        layers = [torch.nn.Linear(224, 224) for _ in range(2)]
        return torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(*layers))

    examine.__globals__["prepare"] = unseen
    checkup["show"](launch(examine, world_size=2))
    assert "rank 1: no span covers 0.40 MB of calls" in capsys.readouterr().out
