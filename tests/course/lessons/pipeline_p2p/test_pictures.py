from matplotlib.patches import FancyArrowPatch, Rectangle

from course.lessons.pipeline_p2p import experiment, pictures
from course.lessons.pipeline_p2p.schedules import Channel, programs
from course.lessons.pipeline_p2p.simulator import Costs, simulate
from course.published import load as published
from labkit.show import alt_text
from labkit.show.plots import new_figure

RECORDED = experiment.recorded()


def test_a_timeline_draws_every_task_and_transfer_and_frames_a_gap():
    seen = simulate(programs(experiment.PLAN), Costs(1, 2, leg=1), channel=Channel.TAGGED)
    ax = pictures.step(seen, title="eager 1F1B", gap=(1, 2.0, 3.0))
    assert sum(isinstance(patch, Rectangle) for patch in ax.patches) == 36 + 1
    assert sum(isinstance(patch, FancyArrowPatch) for patch in ax.patches) == 24
    named = [text.get_text() for text in ax.texts]
    assert named.count("F2") == 3 + 2  # on each rank, and beside the two messages
    assert len(alt_text.tables_of(ax)[0].rows) == 36 + 24
    words = alt_text.text_of(ax)
    assert "36 tasks and 24 transfers" in words and "Rank 1 stands idle from 2000 to 3000" in words
    assert "%" not in words, "the lesson asks for the share of time in which ranks are idle"


def test_the_experiments_picture_tells_every_figure():
    words = alt_text.text_of(pictures.draw(list(RECORDED.values())))
    assert "B0" not in words  # other tasks are another comparison
    usual = {"rate": "200mbit", "slow": 1, "longer_b0": 0}
    drawn = [r for r in RECORDED.values() if usual.items() <= r.params.items()]
    assert len(drawn) >= 15
    for record in drawn:
        took, model = 1e3 * record.summary.median, 1e3 * record.predicted
        assert f"{took:.0f} ms (model {model:.3g})" in words


def test_the_frame_is_drawn_in_both_steps_and_lasts_as_long_as_b0():
    cases = experiment.MYSTERY, experiment.LONGER
    seen = [(str(case), experiment.step(RECORDED[str(case)])) for case in cases]
    panels = pictures.steps(seen, tier="RECORDED", framed=True).axes
    drawn = [patch for panel in panels for patch in panel.patches]
    frames = [patch for patch in drawn if isinstance(patch, Rectangle) and not patch.get_fill()]
    assert [round(frame.get_width() / 25) for frame in frames] == [1, 3]


def test_the_chain_is_marked_from_the_receive_to_the_task():
    ax = new_figure()[1][0]
    pictures.queues(programs(experiment.PLAN), chain=pictures.CHAIN, ax=ax)
    frames = [patch for patch in ax.patches if not patch.get_fill()]
    assert len(frames) == 4
    assert sum(getattr(text, "arrow_patch", None) is not None for text in ax.texts) == 3


def test_the_threads_transfers_are_shown_with_their_source():
    ax = pictures.ten_copies()
    widths = [patch.get_width() for patch in ax.patches]
    figures = published("pipeline_p2p")
    assert len(widths) == 6 and figures["send"].value in widths and 133 in widths
    stamps = " ".join(alt_text.of(ax.figure).stamps.values())
    assert stamps.startswith("PUBLISHED") and str(figures["send"].source) in stamps


def test_the_legs_of_a_copy_are_counted_in_the_picture():
    words = alt_text.text_of(pictures.two_legs())
    assert "One leg after the other, to one GPU: 133 ms by the model, 133 ms measured" in words
    assert "two GPUs in turn: 133 ms by the model, 97 ms measured" in words
    assert "a leg of 6.65 ms: 100 ms by the model, 75 ms measured" in words
    assert "a leg of 4.87 ms: 73 ms by the model, 75 ms measured" in words
    assert "The way down is never idle: 73 ms by the model, 75 ms measured" in words
