"""The field guide's checkup finds the late rank, alone and under torchrun."""

import os
import subprocess
import sys
from pathlib import Path

from pytest import approx, mark

ROOT = Path(__file__).resolve().parents[1]
SCRIPT = "examples/checkup.py"
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=4"]


@mark.timed
@mark.parametrize("starter", [[sys.executable], TORCHRUN], ids=["alone", "torchrun"])
def test_the_checkup_names_the_late_rank_and_counts_its_bytes(starter):
    variables = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*starter, SCRIPT], cwd=ROOT, env=variables, capture_output=True, text=True, timeout=90
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout[done.stdout.index("rank  input ms") :].splitlines()
    names = [name.strip() for name in lines[0].split("  ") if name.strip()]
    rows = [dict(zip(names, map(float, line.split()), strict=False)) for line in lines[1:5]]
    assert max(rows, key=lambda row: row["delayed all by"])["rank"] == 1
    assert min(rows, key=lambda row: row["wait ms"])["rank"] == 1, "the smallest timer is the late"
    assert "calls per step: 20" in done.stdout
    if sys.platform == "linux":
        sent = [float(word) for word in lines[6].partition(":")[2].split()]
        assert sent == approx([6.0] * 4, rel=0.01), "a ring sends 1.5 S"
