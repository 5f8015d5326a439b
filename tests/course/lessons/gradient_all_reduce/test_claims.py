"""Lesson 02: claims fail with records in which they are false; its board follows the figures."""

import dataclasses
import re
from types import SimpleNamespace

from pytest import approx, mark

from course import catalogue
from course.lessons.gradient_all_reduce import evidence, experiment, pictures
from course.predictions.board import FELL, NOT_JUDGED, STANDS
from course.runs import by_case
from tests.course.lessons.cells import Cells

CELLS, DEEPER = Cells("02_gradient_all_reduce"), Cells("deeper/02_deeper")
RUNS = by_case(catalogue.experiment(experiment.NAME).recorded())


def found(after, during):
    """What the cells find by round: `during` on rung 4, `after` on all others."""
    by_rung = dict(zip(experiment.programs.RUNGS, [*4 * [after], during], strict=True))
    answers = {"exposed": lambda _: by_rung, "ends": lambda _: by_rung, "lengths": lambda _: {}}
    answers |= {"on_hosts": lambda *_, case, **__: RUNS[case]}
    lesson = SimpleNamespace(**vars(experiment) | answers)
    drawn = SimpleNamespace(rungs=lambda _: None)
    return {"problem": lesson, "pictures": drawn, "DuringBackward": None}


@mark.parametrize("during", [[0.05, 0.07, 0.08], [0.01, 0.02, 0.08]], ids=["nothing", "mixed"])
def test_overlap_hides_in_every_round(during):
    good, bad = (found([0.05, 0.06, 0.07], with_4) for with_4 in ([0.01, 0.02, 0.03], during))
    CELLS.hold("climb", true=good, false=bad, words="less than 3b")


@mark.parametrize("with_4", [[0.2] * 3, [0.15, 0.16, 0.21]], ids=["nothing", "mixed"])
def test_overlap_shortens_every_step_where_computing_sleeps(with_4):
    def steps(*seconds):  # (backward, step) by round
        return found([(0.1, 0.2)] * 3, [(0.1, step) for step in seconds])

    good, bad = steps(0.15, 0.16, 0.17), steps(*with_4)
    CELLS.hold("asleep", true=good, false=bad, words="shortens every step")


def test_our_own_calm_run_leaves_less_bandwidth_or_arithmetic_and_what_nobody_asked():
    board = evidence.INVESTIGATION.recorded()
    assert board.left == ["c", "d", "e"]
    assert board.fates == {"a": "fell, by A", "b": "fell, by B", "c": "still standing"}
    assert board.state("d") == NOT_JUDGED, '"about 60ms" and the kind of host decide it'
    assert "how many GPUs the benchmark ran" in board.verdict()
    assert "rounds" not in board.tests["d", "D"].weight, "what was published is one figure"
    assert board.tests["c", "D"].judged.rounds == (True,)


@mark.parametrize(("ms", "state"), [(8, FELL), (15, NOT_JUDGED), (40, NOT_JUDGED)])
def test_our_price_of_a_call_clears_many_calls_or_says_nothing(ms, state):
    small = RUNS[f"all_reduce of {experiment.SMALL} bytes"]
    priced = dataclasses.replace(small, samples=[[ms / 1e3] * 5] * 4)
    board = evidence.INVESTIGATION.empty()
    evidence.small_calls(board, priced)
    assert board.state("b") == state


def test_what_is_known_of_the_thread_is_what_it_says():
    thread = evidence.THREAD
    assert thread.nbytes / 2**20 == approx(471.6, abs=0.1), "471MB, as the thread says"
    assert thread.of_the_link(thread.benchmark) == approx(1.288, abs=0.001)
    assert thread.of_the_link(thread.in_training) == approx(0.275, abs=0.001)
    two = dataclasses.replace(thread, ranks=2)
    assert two.of_the_link(two.benchmark) == approx(0.687, abs=0.001)


def test_a_run_in_which_the_six_grow_with_the_late_rank_speaks_against_us():
    late = RUNS["late"]
    board = evidence.INVESTIGATION.empty()
    pairs = [
        (before, {name: x + 0.05 * name.startswith("classifier") for name, x in after.items()})
        for before, after in experiment.pairs(late)
    ]
    evidence.late_rank(board, late, pairs)
    assert board.state("a") == STANDS


def test_the_ends_of_backward_and_of_the_step_are_those_that_the_lesson_names():
    ends = list(experiment.lengths(RUNS["rungs"]).values())[3:]
    assert [[round(1e3 * s) for s in rung] for rung in ends] == [[228, 288], [265, 278]]


CURE = [record for record in RUNS.values() if record.case.startswith("cure: ")]


def with_cure(*saves):
    """The recorded arms, but copying aside takes 150 ms off the six in these, and nothing else."""
    changed = []
    for record in CURE:
        order, batch, copied = record.case.removeprefix("cure: ").split(", ")
        shorter = 0.15 if (order, batch) in saves and copied == "aside" else 0
        values = record.values | {"the six": [0.2 - shorter] * 3}
        changed.append(dataclasses.replace(record, values=values))
    return changed


def test_our_own_calm_run_of_the_cure_shortens_the_six_in_ddps_order_alone():
    assert evidence.where_it_cures(CURE) == "d"
    words = evidence.cure_in_words(CURE)
    assert re.search("in DDP's order it makes the six 19. ms shorter", words)
    assert re.search("in the loop's order it makes the six . ms longer, the first call 20.", words)
    assert len(pictures.cure(CURE).rows) == 4


@mark.parametrize("letter", evidence.WHERE_IT_CURES)
def test_every_vote_on_the_cure_could_have_been_right(letter):
    assert evidence.where_it_cures(with_cure(*evidence.WHERE_IT_CURES[letter])) == letter


def test_a_cure_on_which_rounds_disagree_or_that_no_vote_names_is_not_judged():
    odd, *others = with_cure()
    mixed = dataclasses.replace(odd, values=odd.values | {"the six": [0.2, 0.4, 0.2]})
    assert evidence.where_it_cures([mixed, *others]) is None
    assert evidence.where_it_cures(with_cure(("DDP's order", "in time"))) is None


def test_the_cure_was_recorded_with_the_program_that_its_cell_shows():
    for program in (experiment.programs.fetch, experiment.programs.with_copies):
        shown, recorded = DEEPER.both("cure-program", program)
        assert shown == recorded


def test_rare_stalls_cost_more_than_jitter():
    def found(rare):  # ms lost on 2, 8 and 16 ranks, in three turns
        lost = dict.fromkeys((("often, a little", n) for n in (2, 8, 16)), [5.0] * 3)
        lost |= {("rarely, but much", n): [ms] * 3 for n, ms in zip((2, 8, 16), rare, strict=True)}
        return {"lost": lost, "sizes": (2, 8, 16), "kinds": DEEPER.run("latest-program")["kinds"]}

    DEEPER.hold("latest-verdict", true=found([6, 20, 33]), false=found([6, 6, 6]), words="rare")


@mark.parametrize("at", [1, 4], ids=["no cap given", "the last bucket"])
def test_ddps_small_bucket(at):
    sizes = [[1_000_000, 7_000_000], [7_000_000, 1_000_000], [8_000_000]]
    sizes += [[1_000_000, 7_000_000], [7_000_000, 1_000_000]]
    turned = [mine[::-1] if k == at else mine for k, mine in enumerate(sizes)]
    names = ["nothing given", "bucket_cap_mb=2", "bucket_cap_mb=25", "alike", "alike, last cap"]
    good, bad = ({"sent": dict(zip(names, sent, strict=True))} for sent in (sizes, turned))
    DEEPER.hold("ddp-verdict", true=good, false=bad, words="bucket")
