import pytest
import torch
import torch.distributed as dist

from course import catalogue
from course.comm.buckets import MB
from course.lessons.coalesced_broadcast import experiment, pictures, programs
from course.lessons.coalesced_broadcast.programs import CALLS, CURVE, EXPERIMENTS
from course.place import Place
from labkit import launch
from labkit.fabric.fabric import SWITCH
from labkit.measure.records import Tier
from labkit.show.alt_text import text_of
from tests.course.lessons.cells import Cells

pytestmark = pytest.mark.slow

CELLS = Cells("03_coalesced_broadcast")
WAYS = {k: way for ways in [CURVE, *EXPERIMENTS.values(), CALLS] for k, way in ways.items()}


def test_what_is_measured_is_what_the_cell_shows():
    shown, measured = CELLS.both("broadcast", programs.broadcast)
    assert shown == measured


@pytest.mark.parametrize("world_size", [pytest.param(2, marks=pytest.mark.exhaustive), 3])
def test_every_way_gives_every_rank_the_source_values(world_size):
    given = programs.broadcast, WAYS, 1 / 16, 1
    results = launch(programs.time_ways, *given, world_size=world_size)  # raises where one does not
    assert [len(result) for result in results] == [len(WAYS)] * world_size


def test_two_on_their_way_in_one_buffer_are_seen():
    def hasty(tensors, cap, kept):
        """Pack into a buffer that is still on its way; then unpack what arrives."""
        for number, bucket in enumerate(programs.buckets.plan(tensors, cap=cap)):
            members = [tensors[place] for place in bucket.members]
            flat = programs.buckets.flatten(members, out=kept.of(number, bucket))
            dist.broadcast(flat, 0)
            if number % 2:
                programs.buckets.unpack(flat, members)

    way = {"hasty": {"cap": 4000, "kept": 1}}
    with pytest.raises(AssertionError, match="hasty: WRONG VALUES on rank 1"):
        launch(programs.time_ways, hasty, way, 1 / 16, 1, world_size=2)


@pytest.mark.parametrize(("line", "buffers"), [("del flat", 3), ("del work, flat", 2)])
def test_the_third_buffer_goes_with_both_of_its_names(line, buffers):
    last, space = "buckets.unpack(flat, members)", vars(programs) | {"__name__": "cell"}
    exec(CELLS.sources["broadcast"].replace(last, f"{last}; {line}"), space)
    ways = {"10 MB": CURVE["10 MB"]}
    (record,) = experiment.compare(space["broadcast"], ways, iters=1, place=Place(hosts=1))
    assert record.values["peak"] / MB == pytest.approx(10 * buffers, abs=4)


def test_a_way_that_cannot_be_is_left_out_in_a_line(capsys):
    none, strange, known = {"cap": None, "in_flight": 0}, {"flight": 2}, "cap, in_flight, kept"
    ways = {"below": {"cap": -1}, "none": none, "strange": strange, "all": {"cap": None}}
    (record,) = experiment.compare(programs.broadcast, ways, iters=1, width=1 / 16)
    assert record.case == "all"
    assert sorted(capsys.readouterr().out.splitlines()) == [
        "'below' is left out: cap=-1; None, or 0 bytes and more.",
        "'none' is left out: in_flight=0; 1 and more.",
        f"'strange' is left out: nobody reads 'flight'; a way may have {known}, flat, huge.",
    ]


def test_without_links_the_recorded_run_is_shown_and_says_so(monkeypatch, capsys):
    monkeypatch.setenv(SWITCH, "1")
    shown = experiment.compare(programs.broadcast, CURVE, rate=experiment.LINK)
    assert [record.case for record in shown] == list(CURVE)
    assert {record.tier for record in shown} == {Tier.RECORDED}
    assert "RECORDED" in capsys.readouterr().out


def test_the_recording_has_what_is_shown_of_it_and_its_pictures_have_words():
    recorded = catalogue.experiment(experiment.NAME).recorded()
    assert {record.case for record in recorded} >= set(WAYS)
    assert len(text_of(pictures.draw(recorded))) > 30 < len(text_of(pictures.puzzle()))


def test_a_state_is_the_ranks_own_and_may_lie_flat():
    def program():
        apart, flat = programs.state(1 / 16), programs.state(1 / 16, flat=True)
        same = all(torch.equal(a, b) for a, b in zip(apart, flat, strict=True))
        return len(apart), same, len({t.untyped_storage().data_ptr() for t in flat})

    assert launch(program, world_size=2) == [(320, True, 2)] * 2


def test_what_is_watched_adds_up():
    ranks = launch(programs.watch, programs.broadcast, programs.GAP, 1, world_size=2)
    for rank in [once for seen in ranks for (once,) in seen.values()]:
        kinds = [what for what, *_ in rank]
        assert len({kinds.count(what) for what in kinds}) == 1, "each bucket once"
        ends = {(what, number): end for what, number, _, end in rank}
        starts = {(what, number): begin for what, number, begin, _ in rank}
        for number in range(len(rank) // 4):
            assert ends["packing", number] <= starts["on its way", number]
            assert ends["on its way", number] <= starts["unpacking", number]
