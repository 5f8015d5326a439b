"""Case files, as they are told to a person; `test_failures` reads those of ranks that hang."""

from pathlib import Path

from pytest import mark

import course
import labkit
from labkit.ranks.errors import CaseFile, CollectiveCall, Line, RankCase


@mark.parametrize(
    "path, own",
    [
        ("/home/me/work/lesson.py", True),
        ("/tmp/ipykernel_77/123.py", True),
        ("/home/me/labkit/train.py", True),  # a folder of the same name
        ("/env/lib/python3.11/site-packages/torch/nn/x.py", False),
        ("/usr/lib/python3/dist-packages/numpy/x.py", False),
        ("/usr/lib/python3.11/threading.py", False),
        (f"{Path(labkit.__file__).parent}/ranks/rank.py", False),
        (f"{Path(course.__file__).parent}/lessons/gloo_scaling/checks.py", False),
        ("<frozen importlib._bootstrap>", False),
    ],
)
def test_whose_code_a_line_is(path, own):
    assert Line(path, 1, "f").of_program == own


def test_a_late_receive_is_not_a_missing_collective():
    members = (0, 1)
    waiting = CollectiveCall("broadcast", 2, "default", members, ((2, 3),), "int", False, False)
    recv = CollectiveCall("recv", 2, "default", members, ((4,),), "float", True, False)
    case = CaseFile((RankCase(0, "running", (), (waiting,)), RankCase(1, "running", (), (recv,))))
    assert case.missing(waiting) == [1], "a p2p call of the same number is another sequence"
    assert "rank 1: running, waiting in recv #2 of group default" in str(case).splitlines()


def test_only_the_last_calls_are_told():
    done = [CollectiveCall("barrier", n, "default", (0,), (), "", False, True) for n in range(1, 8)]
    text = str(CaseFile((RankCase(0, "running", (), tuple(done)),)))
    assert "entered 3 earlier calls, then" in text
    assert "#3 barrier" not in text
    assert "#7 barrier() in group default: done" in text
