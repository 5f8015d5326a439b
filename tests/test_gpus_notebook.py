"""What of notebooks/gpus.ipynb can be held without a GPU: its programs, on gloo and the CPU.

Nothing here says how NCCL behaves. It says that the programs end, that messages meet their
receives, and that a log of NCCL's is read as its source writes it.
"""

import re
import time
from unittest import mock

import pytest
import torch.distributed as dist

from course.lessons.gradient_all_reduce.programs import vgg11
from labkit import launch
from labkit.measure.records import Tier
from tests.course.lessons.cells import Cells

pytestmark = pytest.mark.slow

CELLS = Cells("gpus").sources


def names_of(*cells):
    """Run cells as on a machine without GPUs, with the CPU for a GPU; return what they define."""
    names = {"seconds": lambda work: [work(), 1e-3][1], "display": print}
    for cell in ("imports", "machine", "here", *cells):
        text = CELLS[cell].replace('device="cuda"', 'device="cpu"')
        text = re.sub(r"torch\.cuda\.synchronize\(\)", "None", text)
        exec(compile(text, cell, "exec"), names)
    return names


def test_gloo_goes_by_tags_and_who_receives_late_has_met_the_sender_before():
    names, sends = names_of("order", "late", "algorithms"), []
    answers = launch(names["order_of_sends"], world_size=2)
    assert answers[1] == {"asked for tag 1": 1.0, "asked for tag 2": 2.0}
    program = names["late_receiver"]

    def counted(nbytes):
        send, seen = dist.send, time.perf_counter()
        dist.send = lambda *given: (sends.append(given), send(*given))
        try:
            return program(nbytes), len(sends), time.perf_counter() - seen
        finally:
            dist.send = send

    (held, warm_ups, took), _ = launch(counted, 2**10, world_size=2)
    assert (warm_ups, len(held)) == (1, 3) and took > 0.25
    assert launch(names["three_ways"], 4096, world_size=3) == 3 * [3 * [(1e-3,) * 3]]


NOT_RUN = ("beside", "waves", "marks", "two-copies", "order", "posted", "ipc", "channels")
NOT_RUN += ("beside-nccl", "vgg", "hang", "inspector", "load", "protocols")


def test_what_waits_for_a_gpu_says_so_and_its_programs_run_on_the_cpu(capsys):
    names = names_of(*NOT_RUN, "info")
    assert capsys.readouterr().out.count("not run") >= 12
    [(copies, products)] = launch(names["who_ran_when"], 3, 2, 64, 2**10, world_size=1)
    assert (len(copies), len(products)) == (3, 2) and copies == sorted(copies)
    [took] = launch(names["copies_at_once"], names["ways"], 2**12, world_size=1)
    assert len(took) == 10 and min(map(min, took)) > 0
    assert min(map(min, launch(names["one_send"], 2**10, world_size=2))) > 0
    (alone, beside, *_), _ = launch(names["beside_nccl"], 2**10, 64, 4, 2, world_size=2)
    assert alone[0] > 0 and beside[0] > 0
    waited, _ = launch(names["one_late"], 0.5, 2, 2**10, world_size=2)
    assert min(waited) > 0.25
    (small, large), _ = launch(names["by_size"], [2**10, 2**14], world_size=2)
    assert small[1] and large[1]
    assert launch(names["hello"], world_size=2) == [None, None]
    found = launch(names["all_tensors"], [100, 50], world_size=2)[0]
    assert {"a call each", "flat"} <= found.keys()
    assert sum(names["sizes"]) == 132_863_336


@pytest.mark.parametrize("way", ["gathers", "is stopped"])
def test_a_rank_that_never_comes_is_ended_by_the_groups_limit(way):
    hung = names_of("order", "hang")["hung"]
    with pytest.raises(RuntimeError, match="Timed out waiting 2000ms"):
        launch(hung, way, 2, (0.1, 0.1), world_size=2, timeout=20)  # limit and pauses in s


def test_the_posted_programs_run_from_their_lessons_cells():
    posted = names_of("order", "posted")["POSTED"]
    small = {"02": (0, [vgg11, 2]), "03": (0, [[4, 800]]), "05": (1, [2**10]), "06": (1, [2**10])}
    for name, (ranks, program, *args) in posted.items():
        first, given = small[name[:2]]
        args[first : first + len(given)] = given
        if name == "06, the third as printed":
            with pytest.raises(RuntimeError, match="outputShape"):
                launch(program, *args, world_size=ranks)
            continue
        answers = launch(program, *args, world_size=ranks)
        if name[:2] in ("03", "05"):
            assert all(right if name[:2] == "03" else right[1] for right in answers)


def test_the_recording_says_where_it_is_from_and_claims_are_judged_by_it(capsys):
    names = names_of("batch", "packing", *NOT_RUN, "late", "algorithms", "calls")
    assert {record.tier for record in names["RECORDED"]} == {Tier.RECORDED}
    said = capsys.readouterr().out
    assert "RECORDED: " in said and "1 x NVIDIA H100" in said and "NCCL 2.30.4" in said
    assert said.count("held, in the recording: ") == 40 and "not on this run" not in said


def test_what_is_measured_here_stands_before_the_recording_and_decides(capsys):
    names = names_of("batch")
    capsys.readouterr()
    for case in names["ways"]:
        names["keep"]("batch", case, [1.0, 1.0, 1.0], held=[1.0, 1.0, 1.0])
    cell = CELLS["batch"]
    exec(cell[cell.index("found = show") :], names)
    said = capsys.readouterr().out
    assert said.index("MEASURED") < said.index("RECORDED")
    assert "not on this run: from pinned memory `non_blocking` lets Python go on" in said


def test_who_chose_is_read_from_lines_as_nccl_writes_them(tmp_path, capsys):
    """The format of NCCL 2.24 to 2.30.7, src/enqueue.cc."""
    chose = "{}: 268435456 Bytes -> Algo RING proto {} channel{{Lo..Hi}}={{0..15}}"
    all_reduce, broadcast = chose.format("AllReduce", "SIMPLE"), chose.format("Broadcast", "LL128")
    lines = (all_reduce, all_reduce, broadcast, "something else")
    log = "".join(f"node1:4711:4720 [0] NCCL INFO {line}\n" for line in lines)
    (tmp_path / "4711").write_text(log)
    found = names_of("order", "algorithms")["who_chose"](tmp_path)
    assert found == "AllReduce: RING/SIMPLE, Broadcast: RING/LL128"
    assert "not run" in capsys.readouterr().out


def test_without_a_gpu_a_cell_says_that_it_was_not_run_and_with_one_an_error_is_shown_whole(capsys):
    names = names_of()
    assert names["on_gpus"](1, print) is None
    assert "not run. GPUs that it needs on this host: 1" in capsys.readouterr().out
    error = RuntimeError("NCCL error\nLast error:\nMultiple Ranks are using the same GPU")
    names |= {"GPUS": 1, "launch": mock.Mock(side_effect=error)}
    assert names["on_gpus"](1, print) is None
    assert "using the same GPU" in capsys.readouterr().out
