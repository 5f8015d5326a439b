import pytest
import torch
import torch.distributed as dist

from course.lessons.hang_clinic.send_and_wait import ask
from labkit import LaunchTimeout, launch
from tests.course.lessons.refusals import patiently


def test_what_gloo_answers():
    answers = launch(ask, world_size=2)[0]
    assert list(answers.values()) == [True, False, True, True, False, True, True]


def test_a_second_wait_on_a_send_does_not_return():
    def program():
        x = torch.zeros(1)
        if dist.get_rank() == 0:
            work = dist.isend(x, 1)
            work.wait()
            work.wait()
        else:
            dist.recv(x, 0)

    def judge(limit):
        with pytest.raises(LaunchTimeout) as caught:
            launch(program, world_size=2, timeout=limit)
        assert caught.value.case.running == [0]

    patiently(judge)
