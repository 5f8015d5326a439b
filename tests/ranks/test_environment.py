"""Which environment ranks have: ours, what is asked for, and no leftovers of other launchers."""

import os
import sys
from dataclasses import replace
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

from labkit import Launcher, launch
from labkit.ranks import server, torchrun
from tests.ranks.nodes import python


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
    def compiles():
        import torch._dynamo.config
        import torch._inductor.config

        disabled = torch._dynamo.config.disable, torch._inductor.config.force_disable_caches
        return *disabled, not sys.flags.hash_randomization  # which a process reads at its start

    off = {"TORCH_COMPILE_DISABLE": "1", "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1"}
    off |= {"PYTHONHASHSEED": "0"}
    server._told.clear()
    first = server.shared().pid
    assert launch(compiles, world_size=1) == [(False, False, False)]
    assert server.shared().pid == first, "what was not read at import needs no fresh server"
    assert launch(compiles, world_size=1, env=off) == [(True, True, True)]
    assert launch(compiles, world_size=1) == [(False, False, False)]
    said = capsys.readouterr().err
    assert said.count("is read at import") == 1
    assert "TORCHINDUCTOR_FORCE_DISABLE_CACHES, TORCH_COMPILE_DISABLE changed" in said


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


@pytest.mark.slow
def test_a_base_images_variables_are_ignored_in_one_line(tmp_path):
    script = "from labkit import launch; print(*(launch(int, world_size=2) for _ in range(2)))"
    done = python("-c", script, cwd=tmp_path, MASTER_ADDR="10.1.1.1", WORLD_SIZE="16")
    assert done.stdout == "[0, 0] [0, 0]\n"
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
