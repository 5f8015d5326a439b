"""Which environment ranks have: ours, what is asked for, and no leftovers of other launchers."""

import logging
import os
import sys
from dataclasses import replace
from datetime import timedelta

import pytest
import torch.distributed as dist

from labkit import Fabric, FabricUnavailable, Launcher, launch
from labkit.ranks import server, torchrun


def variables(*names):
    return [os.environ.get(name) for name in names]


def test_env_adds_and_takes_away(monkeypatch):
    monkeypatch.setenv("OURS", "1")
    names = ("OURS", "MORE", "RANK")
    assert launch(variables, *names, world_size=1, env={"MORE": "2"}) == [["1", "2", "0"]]
    assert launch(variables, *names, world_size=1, env={"OURS": None}) == [[None, None, "0"]]
    again = Launcher(world_size=1, env={"MORE": "3"})
    assert again(variables, *names) == [["1", "3", "0"]]
    assert replace(again, env={})(variables, *names) == [["1", None, "0"]]
    assert "MORE" not in os.environ


@pytest.mark.slow
def test_what_is_read_at_import_or_at_a_start_reaches_ranks_and_is_said_once(capsys):
    def read():
        return logging.getLogger("torch._dynamo").level, sys.flags.hash_randomization

    env = {"TORCH_LOGS": "+dynamo", "PYTHONHASHSEED": "0"}  # read by torch, and by Python
    server._told.clear()
    first = server.shared().pid
    assert launch(read, world_size=1, env={"TORCHINDUCTOR_CACHE_DIR": "/tmp"}) == [(0, 1)]
    assert server.shared().pid == first, "what was not read at import needs no fresh server"
    assert launch(read, world_size=1, env=env) == [(logging.DEBUG, 0)]
    assert launch(read, world_size=1) == [(0, 1)]
    said = capsys.readouterr().err
    assert said.count("is read at import") == 1
    assert "PYTHONHASHSEED, TORCH_LOGS changed" in said


def test_leftovers_of_torchrun_do_not_hang(monkeypatch):
    """With the agent's store each rank would wait for a store that nobody serves."""

    def main():
        dist.init_process_group("gloo", timeout=timedelta(seconds=20))
        return dist.get_world_size(), dist.is_torchelastic_launched(), *variables("GROUP_RANK")

    job = {"MASTER_ADDR": "10.255.255.1", "MASTER_PORT": "1", "WORLD_SIZE": "2"}
    agent = ("TORCHELASTIC_USE_AGENT_STORE", "TORCHELASTIC_RUN_ID", "GROUP_RANK")
    for name, value in (job | dict.fromkeys(agent, "True")).items():
        monkeypatch.setenv(name, value)
    assert launch(main, world_size=3, init=False, timeout=30) == [(3, False, None)] * 3
    asked = launch(variables, "TORCHELASTIC_RUN_ID", world_size=1, env={"TORCHELASTIC_RUN_ID": "7"})
    assert asked == [["7"]], "what is asked for is there"


@pytest.mark.parametrize("start", [launch, lambda _, env: Launcher(env=env)])
def test_another_env_is_refused(start):
    with pytest.raises(ValueError, match=r"env\['A'\] must be a text, or None for none, got 1"):
        start(int, env={"A": 1})
    with pytest.raises(ValueError, match="launch sets RANK itself"):
        start(int, env={"RANK": "1"})


def test_under_torchrun_there_is_no_fabric_and_options_of_a_start_are_refused(monkeypatch):
    monkeypatch.setattr(torchrun, "is_here", lambda: True)
    with pytest.raises(FabricUnavailable, match="torchrun"):
        Fabric.star(hosts=2, rate="100mbit").start()
    for option in ({"env": {"A": "1"}}, {"output": [0]}):
        with pytest.raises(ValueError, match="these are torchrun's"):
            launch(int, **option)
