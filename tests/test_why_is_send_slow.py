"""The script for whoever has two GPUs: what can be tested without them."""

import runpy
import sys

import torch
from pytest import fixture, mark, raises

from tests.ranks.nodes import ROOT

pytestmark = mark.slow

SCRIPT = ROOT / "examples" / "why_is_send_slow.py"


@fixture(scope="module")
def script():
    return runpy.run_path(str(SCRIPT))


@mark.skipif(torch.cuda.device_count() > 1, reason="says so where there are none")
def test_without_two_gpus_it_says_so(monkeypatch):
    monkeypatch.setattr(sys, "argv", [str(SCRIPT)])
    with raises(SystemExit, match="needs two GPUs; this machine has"):
        runpy.run_path(str(SCRIPT), run_name="__main__")


def test_time_and_path_are_read_from_nccls_log(script):
    logs = [
        "host:1:1 [0] NCCL INFO Channel 00 : 0[0] -> 1[1] via SHM/direct/direct\n",
        "host:2:2 [1] NCCL INFO Channel 01/0 : 1[1] -> 0[0] via SHM/CE/CE\ntook 26.69\n",
    ]
    assert script["read"](logs) == (26.69, "SHM/CE/CE, SHM/direct/direct")
    assert script["read"](["NCCL WARN something"]) == (None, "?")


def test_what_goes_through_the_host_is_compared_with_a_copy_through_the_host(script):
    [decides] = (text for name, _, text in script["ROWS"] if name == "no P2P, copy engines")
    assert "near the staged copy in pieces" in decides
