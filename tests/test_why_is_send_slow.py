"""The script for whoever has two GPUs: what can be tested without them."""

import contextlib
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


class Streams:
    """Stands in for torch.cuda: notes what is enqueued, and runs nothing."""

    def __init__(self):
        self.notes, self.current = [], None

    def Stream(self, device):
        streams = self

        class Stream:
            def record_event(self):
                streams.notes.append(("record", device))
                return device

            def wait_event(self, event):
                streams.notes.append(("wait", device, event))

        return Stream()

    def stream(self, stream):
        return contextlib.nullcontext()


def test_a_staged_copy_goes_up_only_when_it_is_down(monkeypatch):
    """Without a GPU: the order of events, and that every number arrives."""
    module, streams, made = script(), Streams(), []
    monkeypatch.setattr(module.torch, "cuda", streams)
    monkeypatch.setattr(module, "NUMBERS", 32)
    monkeypatch.setattr(module, "timed", lambda transfer, devices: transfer())
    ones, empty = torch.ones, torch.empty

    def on_cpu(number, **_):
        made.append(ones(number) * (5 if not made else 0))
        return made[-1]

    monkeypatch.setattr(module.torch, "ones", on_cpu)
    monkeypatch.setattr(module.torch, "empty", lambda number, **_: empty(number))
    module.staged(0, 1, 4)
    assert made[1].tolist() == [5.0] * 32
    assert streams.notes == [("record", 0), ("wait", 1, 0)] * 4 + [("record", 1), ("wait", 0, 1)]
