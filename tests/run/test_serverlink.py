"""The link to the fork server, when the server is lost."""

import os
import signal
import threading

import pytest

from labkit import LaunchError, launch
from labkit.run import serverlink


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
