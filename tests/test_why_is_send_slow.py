"""The script for whoever has two GPUs: what can be tested without them."""

import importlib.util

import torch
from pytest import mark

from tests.ranks.nodes import ROOT, python

pytestmark = mark.slow

SCRIPT = ROOT / "examples" / "why_is_send_slow.py"


def script():
    spec = importlib.util.spec_from_file_location("why_is_send_slow", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@mark.skipif(torch.cuda.device_count() > 1, reason="says so where there are none")
def test_without_two_gpus_it_says_so():
    done = python(SCRIPT)
    assert done.returncode == 1
    assert "needs two GPUs; this machine has" in done.stderr


def test_time_and_path_are_read_from_nccls_log():
    logs = [
        "host:1:1 [0] NCCL INFO Channel 00 : 0[0] -> 1[1] via SHM/direct/direct\n",
        "host:2:2 [1] NCCL INFO Channel 01/0 : 1[1] -> 0[0] via SHM/CE/CE\ntook 26.69\n",
    ]
    assert script().read(logs) == (26.69, "SHM/CE/CE, SHM/direct/direct")
    assert script().read(["NCCL WARN something"]) == (None, "?")


def test_what_goes_through_the_host_is_compared_with_a_copy_through_the_host():
    (decides,) = (text for name, _, text in script().ROWS if name == "no P2P, copy engines")
    assert "near the staged copy in pieces" in decides
