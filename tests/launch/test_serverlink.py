"""The link to the fork server, when the server is lost."""

import os
import signal
import threading

import pytest

from labkit import LaunchError, launch
from labkit.launch import serverlink
from tests.launch import leftovers


def test_a_server_that_died_between_launches_is_replaced():
    lost = serverlink.shared()
    os.kill(lost.pid, signal.SIGKILL)
    lost._process.wait()
    assert launch(int, world_size=2) == [0, 0]
    assert serverlink.shared().pid != lost.pid


def test_a_server_that_dies_during_a_launch_is_an_error_and_takes_its_ranks_along():
    def program():
        import time

        time.sleep(30)

    server = serverlink.shared()
    threading.Timer(0.5, os.kill, [server.pid, signal.SIGKILL]).start()
    with pytest.raises(LaunchError, match=r"the fork server ended \(status -9\)"):
        launch(program, world_size=2)
    assert launch(int, world_size=1) == [0]


def test_a_server_that_is_lost_at_the_first_rank_leaves_no_descriptors(monkeypatch):
    def program():
        return None

    def lost(self, *_):
        raise LaunchError("the fork server ended")

    launch(program, world_size=1)
    before = leftovers.of(os.getpid())
    with monkeypatch.context() as patch:
        patch.setattr(serverlink.ServerLink, "start_rank", lost)
        with pytest.raises(LaunchError, match="the fork server ended"):
            launch(program, world_size=2)
    assert leftovers.of(os.getpid()) == before


def test_a_link_that_was_cut_is_replaced():
    """As after a second interrupt, while the ranks of the first are being ended."""
    cut = serverlink.shared()
    cut.stop()
    assert not cut.alive
    assert launch(int, world_size=1) == [0]
    assert serverlink.shared() is not cut


def test_a_second_interrupt_ends_the_server_with_its_ranks(monkeypatch):
    def program():
        import time

        time.sleep(30)

    def interrupted(self):
        raise KeyboardInterrupt

    server = serverlink.shared()
    with monkeypatch.context() as patch:
        patch.setattr(serverlink.ServerLink, "end_launch", interrupted)
        threading.Timer(0.3, os.kill, [os.getpid(), signal.SIGINT]).start()
        with pytest.raises(KeyboardInterrupt):
            launch(program, world_size=2)
    assert not server.alive
    assert leftovers.directories_of(os.getpid()) == []
    assert launch(int, world_size=1) == [0]
