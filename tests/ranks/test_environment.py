"""Which environment ranks have: ours, what is asked for, and no leftovers of other launchers."""

import logging
import os
import sys
from dataclasses import replace
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

from labkit import Launcher, launch
from labkit.ranks import server, torchrun
from tests.ranks.nodes import ROOT, python


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


def main():
    dist.init_process_group("gloo", timeout=timedelta(seconds=20))
    return dist.get_world_size(), dist.is_torchelastic_launched(), os.environ.get("GROUP_RANK")


def test_leftovers_of_torchrun_do_not_hang(monkeypatch):
    """With the agent's store each rank would wait for a store that nobody serves."""
    job = {"MASTER_ADDR": "10.255.255.1", "MASTER_PORT": "1", "WORLD_SIZE": "2"}
    agent = ("TORCHELASTIC_USE_AGENT_STORE", "TORCHELASTIC_RUN_ID", "GROUP_RANK")
    for name, value in (job | dict.fromkeys(agent, "True")).items():
        monkeypatch.setenv(name, value)
    assert launch(main, world_size=3, init=False, timeout=30) == [(3, False, None)] * 3
    asked = launch(variables, "TORCHELASTIC_RUN_ID", world_size=1, env={"TORCHELASTIC_RUN_ID": "7"})
    assert asked == [["7"]], "what is asked for is there"


SCRIPT = """
import sys
from labkit import Launcher, RankDied, __file__, launch
print("script starts")
print(*(launch(lambda: int(__import__("os").environ["RANK"]), world_size=2) for _ in range(2)))
print("torch" in sys.modules, __file__)
"""


@pytest.mark.slow
def test_a_script_needs_no_main_guard_no_torch_no_installed_labkit_and_no_base_images_variables(
    tmp_path,
):
    (tmp_path / "labkit").symlink_to(ROOT / "labkit")
    variables = {"MASTER_ADDR": "10.1.1.1", "WORLD_SIZE": "16", "PYTHONPATH": str(tmp_path)}
    done = python("-c", SCRIPT, cwd="/", **variables)
    file = tmp_path / "labkit" / "__init__.py"
    assert done.stdout == f"script starts\n[0, 1] [0, 1]\nFalse {file}\n", done.stderr
    [line] = done.stderr.splitlines()
    assert line.startswith("labkit: WORLD_SIZE, MASTER_ADDR")
    assert "without RANK and MASTER_PORT it is no job of torchrun's" in line


@pytest.mark.parametrize(
    "wrong, says",
    [
        ({"A": 1}, r"env\['A'\] must be a text, or None for none, got 1"),
        ({"RANK": "1"}, "launch sets RANK itself"),
    ],
)
def test_another_env_is_refused(wrong, says):
    for start in (launch, lambda _, env: Launcher(env=env)):
        with pytest.raises((TypeError, ValueError), match=says):
            start(int, env=wrong)


@pytest.mark.parametrize("option", [{"env": {"A": "1"}}, {"output": [0]}])
def test_under_torchrun_options_of_a_start_are_refused(option, monkeypatch):
    monkeypatch.setattr(torchrun, "is_here", lambda: True)
    with pytest.raises(ValueError, match="these are torchrun's"):
        launch(torch.ones, 1, **option)
