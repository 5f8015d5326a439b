import json

import pytest

from labkit.measure.timeline import Timeline, save_chrome
from labkit.measure.trace import NETWORK, Clock, Kind, RankTrace, Span

CLOCK = Clock(0.0, 1e-9)


def timeline_of(*spans):
    ranks = dict.fromkeys(span.rank for span in spans)
    own = {rank: tuple(span for span in spans if span.rank == rank) for rank in ranks}
    return Timeline([RankTrace(rank, CLOCK, own[rank]) for rank in ranks])


def collective(rank, begin, end, call=0, name="sum", **more):
    return Span(rank, name, Kind.COLLECTIVE, begin, end, call=call, **more)


def test_a_collective_is_split_at_the_last_arrival():
    spans = collective(0, 0.0, 5.0), collective(1, 1.0, 5.5), collective(2, 4.0, 5.2)
    timeline = timeline_of(*spans)
    (arrival,) = timeline.arrivals()
    assert arrival.last == 2
    assert arrival.straggler_delay == 3.0  # had rank 2 been on time, rank 1 would have been last
    assert timeline.straggler_delays() == {0: 0.0, 1: 0.0, 2: 3.0}
    split = timeline.split()
    assert [split.seconds(rank, Kind.WAIT) for rank in range(3)] == [4.0, 3.0, 0.0]
    assert [split.seconds(rank, Kind.MOVE) for rank in range(3)] == pytest.approx([1.0, 1.5, 1.2])


def test_a_launched_collective_is_hidden_or_exposed_and_its_wait_is_split_too():
    timeline = timeline_of(
        Span(0, "backward", Kind.COMPUTE, -3.0, 1.0),
        collective(0, 0.0, 7.0, channel=NETWORK),
        Span(0, "wait sum", Kind.WAIT, 1.0, 7.0, call=0),
        collective(1, 4.0, 7.0),
    )
    assert (timeline.hidden(0), timeline.exposed(0)) == (1.0, 6.0)
    split = timeline.split()
    assert split.seconds(0, Kind.WAIT) == split.seconds(0, Kind.MOVE) == 3.0


def test_a_timeline_can_be_kept_as_rows():
    timeline = timeline_of(collective(0, 2.0, 5.0, nbytes=4), collective(1, 3.0, 5.5))
    again = Timeline.from_rows(json.loads(json.dumps(timeline.rows())))
    assert again.rows() == timeline.rows()
    assert [again.split().seconds(rank, Kind.WAIT) for rank in range(2)] == [1.0, 0.0]


def test_steps_can_be_left_out():
    timeline = timeline_of(collective(0, 0, 9, step=0), collective(0, 10, 11, call=1, step=1))
    assert (timeline.exposed(0), timeline.steps(1).exposed(0)) == (10, 1)
    assert [a.call for a in timeline.steps(0, 0).arrivals()] == [0]


def test_traces_that_do_not_fit_together_are_refused():
    timeline = timeline_of(collective(0, 0, 1), collective(1, 0, 1, name="max"))
    with pytest.raises(ValueError, match=r"number 0 is, by rank, \['sum', 'max'\]"):
        timeline.arrivals()
    spans = collective(0, 0, 1), collective(0, 2, 3, call=1), collective(1, 0, 1)
    with pytest.raises(ValueError, match=r"this rank traced fewer.*group=group"):
        timeline_of(*spans).arrivals()
    with pytest.raises(ValueError, match="one trace per rank"):
        Timeline([RankTrace(0, CLOCK, (collective(0, 0, 1),))] * 2)


def test_collectives_of_some_ranks_are_matched_within_their_group():
    tensor, data = {"ranks": (0, 1)}, {"ranks": (1, 2), "name": "gradients"}
    timeline = timeline_of(
        collective(0, 0.0, 3.0, **tensor),
        collective(1, 2.0, 3.0, **tensor),
        collective(1, 4.0, 9.0, **data),
        collective(2, 1.0, 9.0, **data),
        *(collective(rank, 10.0 + rank, 13.0) for rank in range(3)),
    )
    arrivals = [(arrival.ranks, arrival.last) for arrival in timeline.arrivals()]
    assert arrivals == [((0, 1, 2), 2), ((0, 1), 1), ((1, 2), 1)]
    assert timeline.straggler_delays() == {0: 0.0, 1: 4.0, 2: 1.0}
    assert timeline.split().seconds(2, Kind.WAIT) == 3.0


def test_what_overlaps_counts_once():
    timeline = timeline_of(
        *(collective(0, t, 9.0, call=t, channel=NETWORK) for t in range(2)),
        *(collective(1, 5.0 + t, 9.0, call=t, channel=NETWORK) for t in range(2)),
        Span(0, "backward", Kind.COMPUTE, 0.0, 9.0),
        Span(0, "wait", Kind.WAIT, 1.0, 9.0, call=1),
    )
    assert timeline.straggler_delays() == {0: 0.0, 1: 6.0}
    assert timeline.seconds(0, Kind.COMPUTE) == timeline.hidden(0) == 1.0, "then it waits"


def test_the_table_has_one_row_per_rank():
    table = timeline_of(collective(0, 0, 3), collective(1, 1, 3)).time_by_rank()
    assert table.columns[0] == "rank" and len(table.rows) == 2
    assert dict(zip(table.columns, table.rows[0], strict=True))["wait ms"] == 1000.0


def test_chrome_events_carry_rank_kind_and_microseconds(tmp_path):
    timeline = timeline_of(collective(0, 1.0, 3.0), collective(1, 2.0, 3.0, nbytes=8))
    path = save_chrome(timeline, tmp_path / "trace.json")
    events = json.loads(path.read_text())["traceEvents"]
    spans = [event for event in events if event["ph"] == "X"]
    shown = [(e["pid"], e["cat"], e["ts"], e["dur"]) for e in spans]
    assert shown == [(0, "wait", 0.0, 1e6), (0, "move", 1e6, 1e6), (1, "move", 1e6, 1e6)]
    assert spans[2]["args"]["nbytes"] == 8
