import pytest
import torch
import torch.distributed as dist

from course.lessons.pipeline_p2p import programs
from labkit import LaunchTimeout, launch
from labkit.fabric.fabric import Fabric, FabricUnavailable

EXPECTED = [True, False, True, True, False, True, True]


def test_what_gloo_answers():
    assert list(launch(programs.ask, world_size=2)[0].values()) == EXPECTED


@pytest.mark.timed
def test_on_a_slow_link_wait_ends_before_the_bytes_arrive():
    try:
        with Fabric.star(hosts=2, rate="100mbit") as fabric:
            early = launch(programs.wait_ends_early, world_size=2, fabric=fabric)[0]
    except FabricUnavailable as reason:
        pytest.skip(str(reason))
    assert early > 0.01  # 1 MiB takes 84 ms here


def test_a_second_wait_on_a_send_does_not_return():
    def program():
        x = torch.zeros(1)
        if dist.get_rank() == 0:
            work = dist.isend(x, 1)
            work.wait()
            work.wait()
        else:
            dist.recv(x, 0)

    with pytest.raises(LaunchTimeout) as caught:
        launch(program, world_size=2, timeout=1.0)
    assert caught.value.case.running == [0]
