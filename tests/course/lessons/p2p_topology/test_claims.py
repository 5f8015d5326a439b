"""Every claim of lesson 04 fails where it is false: its cells, run on made-up records."""

import dataclasses

import pytest

from course.lessons.p2p_topology import experiment
from course.lessons.p2p_topology.topology import PUZZLE
from tests.course.lessons.cells import Cells

CORE, DEEPER = Cells("04_p2p_topology"), Cells("deeper/04_deeper")


def record(way, chunk, seconds):
    params = {"part": "way", "ways": [way], "chunk": chunk}
    fields = {"predicted": seconds, "nbytes": 8_000_000, "params": params}
    return dataclasses.replace(experiment.modelled("x", fields), others=0.0)


def timed(whole, pieces):
    """What stands in for `experiment` in the cell that runs the best relay."""

    class Links:
        @staticmethod
        def time_by_chunks(way, chunks, **options):
            return [record(list(way), c, whole if c == 8_000_000 else pieces) for c in chunks]

    direct = record([0, 2], 8_000_000, 1.0)
    return {"experiment": Links, "pass_on": None, "direct": direct, "way": [0, 1, 2]} | QUIET


def quiet(*args, **options):
    """Stand in for reconcile."""


QUIET = {"reconcile": quiet}


def swept(**seconds):
    sizes = {"whole": 8_000_000, "fair": 500_000, "best": 125_000, "small": 8_000}
    sweep = [record([0, 5, 2], sizes[name], time) for name, time in seconds.items()]
    return {"sweep": sweep, "sizes": list(sizes.values()), "best": 85e3, "reconcile": quiet}


def paths(one, two):
    names = ["directly", "one relay", "two relays", "every path"]
    records = [record([0, 2], 1, time) for time in (1.0, one, two, two)]
    return dict(zip(("direct", "way", "two", "every"), records, strict=True)) | {"names": names}


CLAIMS = [
    (CORE, "best", timed(0.26, 0.18), timed(0.26, 0.25), "the hops overlap"),
    (DEEPER, "sweep-verdict", swept(whole=0.26, fair=0.19, best=0.18, small=0.2),
     swept(whole=0.2, fair=0.19, best=0.18, small=0.2), "one piece takes a fifth longer"),
    (DEEPER, "sweep-verdict", swept(whole=0.26, fair=0.19, best=0.18, small=0.2),
     swept(whole=0.26, fair=0.15, best=0.18, small=0.2), "within 15 % of the best"),
    (DEEPER, "every-claim", paths(0.18, 0.09), paths(0.18, 0.17), "less than three quarters"),
]  # fmt: skip


@pytest.mark.parametrize(("lesson", "cell", "true", "false", "words"), CLAIMS, ids=range(4))
def test_a_claim_holds_only_for_figures_that_bear_it_out(lesson, cell, true, false, words):
    lesson.hold(cell, true=true, false=false, words=words)


def test_every_claim_is_tried():
    tried = {(lesson, cell) for lesson, cell, *_ in CLAIMS}
    assert {(x, cell) for x in (CORE, DEEPER) for cell in x.claiming()} == tried


def test_the_theory_holds_as_the_lesson_says(capsys):
    names = CORE.run("board", "predict-ratio", "theory", gate=quiet, predict=quiet)
    assert "27 of 28 pairs within 5 %, but not for [(2, 3)]" in capsys.readouterr().out
    assert PUZZLE.gpus == 8
    assert names["board"].state("b") == "stands"
