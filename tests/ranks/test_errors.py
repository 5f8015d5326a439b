"""Case files: read from what ranks write, and told to a person."""

import json
from pathlib import Path

from pytest import fixture, mark

import course
import labkit
from labkit.ranks.errors import CaseFile, CollectiveCall, Line, RankCase

STACK = """\
Thread 0x00007f01 [gloo] (most recent call first):
  File "/x/other.py", line 3 in somewhere_else

Thread 0x00007f02 (most recent call first):
  File "/env/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py", line 9 in recv
  File "/home/me/lesson.py", line 12 in program
  File "/src/labkit/ranks/rank.py", line 56 in main
"""


def entry(name="nccl:all_reduce", *, number=1, group=("0", "default_pg"), retired=False, p2p=False):
    return {
        "process_group": list(group),
        "profiling_name": name,
        "is_p2p": p2p,
        "collective_seq_id": 0 if p2p else number,
        "p2p_seq_id": number if p2p else 0,
        "input_sizes": [[2, 3]],
        "input_dtypes": ["Float"],
        "retired": retired,
    }


def calls(*entries, groups):
    written = json.dumps({"entries": list(entries), "groups": groups})
    return RankCase.read(0, "running", calls=written).entered


def test_the_main_threads_stack_is_read_innermost_first():
    lines = RankCase.read(0, "running", STACK).stack
    assert [line.name for line in lines] == ["recv", "program", "main"]
    assert lines[1] == Line("/home/me/lesson.py", 12, "program")


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


def test_calls_are_read_with_group_number_shapes_and_state():
    first, second, third = calls(
        entry("gloo:broadcast", number=4, retired=True),
        entry("gloo:all_reduce", number=5, group=("7", "undefined")),
        entry("gloo:recv 0<-1", number=2, group=("8", "mine"), p2p=True),
        groups={"0": [0, 1, 2], "7": [0, 2], "8": [0, 1]},
    )
    assert (first.name, first.number, first.finished) == ("broadcast", 4, True)
    assert (first.group, first.members) == ("default", (0, 1, 2))
    assert (first.shapes, first.dtype) == (((2, 3),), "float")
    assert (second.group, second.finished, second.p2p) == ("[0, 2]", False, False)
    assert (third.group, third.number, third.p2p) == ("mine", 2, True)


def test_a_call_without_tensors_is_told():
    bare = {"input_sizes": [], "input_dtypes": [], "output_sizes": [], "output_dtypes": []}
    [barrier] = calls(entry("gloo:barrier") | bare, groups={"0": [0, 1]})
    assert str(barrier) == "#1 barrier() in group default: NOT FINISHED"


@fixture
def stuck():
    """Ranks 0 and 2 wait in the second call; rank 1 is done, rank 3 is in Python."""
    one = CollectiveCall("all_reduce", 1, "default", (0, 1, 2, 3), ((5,),), "float", False, True)
    two = CollectiveCall("broadcast", 2, "default", (0, 1, 2, 3), ((), (2, 3)), "int", False, False)
    lesson = Line("/home/me/lesson.py", 12, "program")
    library = Line("/env/lib/python3.11/site-packages/x.py", 1, "inner")
    return CaseFile(
        (
            RankCase(0, "running", (library, lesson), (one, two)),
            RankCase(1, "finished", (), (one,)),
            RankCase(2, "running", (lesson,), (one, two)),
            RankCase(3, "running", (lesson,), (one,)),
        )
    )


def test_the_case_is_told_rank_by_rank(stuck):
    lines = str(stuck).splitlines()
    assert lines[0] == (
        "rank 0: running, waiting in broadcast #2 of group default; not there yet: rank 1, 3"
    )
    assert '    File "/home/me/lesson.py", line 12, in program' in lines
    assert not any("site-packages" in line for line in lines), "the learner's lines are enough"
    assert "    #2 broadcast(int[scalar, 2x3]) in group default: NOT FINISHED" in lines
    assert "rank 1: finished" in lines


def test_a_late_receive_is_not_a_missing_collective(stuck):
    recv = CollectiveCall("recv", 2, "default", (0, 1, 2, 3), ((4,),), "float", True, False)
    waiting = stuck.ranks[0].waiting_in
    case = CaseFile((*stuck.ranks[:3], RankCase(3, "running", (), (recv,))))
    assert case.missing(waiting) == [1, 3], "a p2p call of the same number is another sequence"
    assert str(case).splitlines()[-2] == "rank 3: running, waiting in recv #2 of group default"


def test_only_the_last_calls_are_told():
    done = [CollectiveCall("barrier", n, "default", (0,), (), "", False, True) for n in range(1, 8)]
    text = str(CaseFile((RankCase(0, "running", (), tuple(done)),)))
    assert "entered 3 earlier calls, then" in text
    assert "#3 barrier" not in text
    assert "#7 barrier() in group default: done" in text
