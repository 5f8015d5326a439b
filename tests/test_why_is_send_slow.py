"""The script for whoever has two GPUs: what can be tested without them."""

import importlib.util
import subprocess
import sys

import torch
from pytest import mark

from course.catalogue import ROOT

SCRIPT = ROOT / "examples" / "why_is_send_slow.py"


def script():
    spec = importlib.util.spec_from_file_location("why_is_send_slow", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@mark.skipif(torch.cuda.device_count() > 1, reason="says so where there are none")
def test_without_two_gpus_it_says_so():
    done = subprocess.run([sys.executable, SCRIPT], capture_output=True, text=True)
    assert done.returncode == 1
    assert "needs two GPUs; this machine has" in done.stderr


def test_time_and_path_are_read_from_nccls_log():
    logs = [
        "host:1:1 [0] NCCL INFO Channel 00 : 0[0] -> 1[1] via SHM/direct/direct\n",
        "host:2:2 [1] NCCL INFO Channel 01/0 : 1[1] -> 0[0] via SHM/CE/CE\ntook 26.69\n",
    ]
    assert script().read(logs) == (26.69, "SHM/CE/CE, SHM/direct/direct")
    assert script().read(["NCCL WARN something"]) == (None, "?")


def test_each_row_differs_from_another_in_one_thing():
    settings = [settings for _, settings, _ in script().ROWS]
    assert settings[0] == {} and script().ENGINES["NCCL_SHM_MEMCPY_MODE"] == "3"
    for one in settings[1:]:
        engines = {key for key in one if key.startswith("NCCL_SHM")}
        others = [len(one.items() ^ other.items()) for other in settings if other != one]
        assert min(others) == (len(engines) or 1)
        assert not any("MIN_P2P_NCHANNELS" in key for key in one)  # min(.., 2) without NVLink
