"""Case files, as they are told to a person; `test_failures` reads those of ranks that hang."""

from pathlib import Path

import course
import labkit
from labkit.ranks.errors import CaseFile, CollectiveCall, Line, RankCase

OWN = ["/home/me/work/lesson.py", "/tmp/ipykernel_77/123.py"]
OWN += ["/home/me/labkit/train.py"]  # a folder of the same name
OTHERS = ["/env/lib/python3.11/site-packages/torch/nn/x.py", "<frozen importlib._bootstrap>"]
OTHERS += ["/usr/lib/python3/dist-packages/numpy/x.py", "/usr/lib/python3.11/threading.py"]
OTHERS += [f"{Path(labkit.__file__).parent}/ranks/rank.py"]
OTHERS += [f"{Path(course.__file__).parent}/lessons/gloo_scaling/checks.py"]


def test_whose_code_a_line_is():
    assert [path for path in OWN + OTHERS if Line(path, 1, "f").of_program] == OWN


def test_a_hang_inside_an_installed_package_shows_the_line_there():
    package = "/env/lib/python3.11/site-packages/accelerate/data_loader.py"
    insides = [f"/env/lib/python3.11/site-packages/torch/{name}.py" for name in ("a", "b")]
    for stack, shown in (
        ([package, OWN[0]], [package, OWN[0]]),
        ([*insides, package, OWN[0]], [package, OWN[0]]),
        ([*insides, OWN[0]], [OWN[0]]),
    ):
        case = RankCase(0, "running", tuple(Line(path, 7, "f") for path in stack))
        told = [line.strip() for line in str(CaseFile((case,))).splitlines()[1:]]
        assert told == [f'File "{path}", line 7, in f' for path in shown]


def test_a_late_receive_is_not_a_missing_collective():
    members = (0, 1)
    waiting = CollectiveCall("broadcast", 2, "default", members, ((2, 3),), "int", False, False)
    recv = CollectiveCall("recv", 2, "default", members, ((4,),), "float", True, False)
    case = CaseFile((RankCase(0, "running", (), (waiting,)), RankCase(1, "running", (), (recv,))))
    assert case.missing(waiting) == [1], "a p2p call of the same number is another sequence"
    assert "rank 1: running, waiting in recv #2 of group default" in str(case).splitlines()


def test_only_the_last_calls_are_told():
    done = [CollectiveCall("barrier", n, "default", (0,), (), "", False, True) for n in range(1, 8)]
    many = RankCase(0, "running", (), tuple(done), forgotten=300)
    assert "entered 303 earlier" in str(CaseFile((many,)))
    text = str(CaseFile((RankCase(0, "running", (), tuple(done)),)))
    assert "entered 3 earlier calls, then" in text
    assert "#3 barrier" not in text
    assert "#7 barrier() in group default: done" in text
