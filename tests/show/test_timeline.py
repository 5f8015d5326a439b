from labkit.measure.clock import Clock
from labkit.measure.timeline import Timeline
from labkit.measure.trace import NETWORK, Kind, RankTrace, Span
from labkit.show import timeline
from labkit.show.alt_text import tables_of, text_of


def test_the_picture_says_in_words_who_waits_for_whom():
    clock = Clock(0.0, 1e-9, "made up")

    def collective(rank, begin, end, **more):
        return Span(rank, "sum", Kind.COLLECTIVE, begin, end, call=0, **more)

    seen = Timeline(
        [
            RankTrace(0, clock, (collective(0, 0.0, 0.03),)),
            RankTrace(1, clock, (collective(1, 0.02, 0.03, channel=NETWORK),)),
        ]
    )
    ax = timeline.draw(seen, title="Late", until=0.1)
    assert text_of(ax) == (
        "Late. rank 0 waits 20 ms; rank 1 waits 0 ms. "
        "The others lose 20 ms waiting for rank 1 alone."
    )
    ((_, (columns, rows)),) = tables_of(ax)
    assert columns[0] == "rank" and len(rows) == 2
    assert ax.get_xlim() == (0.0, 100.0)
