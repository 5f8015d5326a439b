import pytest
from matplotlib.patches import FancyArrowPatch, Rectangle

from course.lessons.pipeline_p2p import experiment, pictures, published
from course.lessons.pipeline_p2p.schedules import Channel, one_f_one_b
from course.lessons.pipeline_p2p.simulator import Costs, simulate
from course.runs import by_case
from labkit.measure.records import load
from labkit.show import alt_text


def test_a_timeline_draws_every_task_and_transfer_and_lists_them():
    seen = simulate(one_f_one_b(stages=3, micro_batches=4), Costs(1, 2, nbytes=1, rate=1))
    ax = pictures.step(seen, title="1F1B")
    assert sum(isinstance(patch, Rectangle) for patch in ax.patches) == 24
    assert sum(isinstance(patch, FancyArrowPatch) for patch in ax.patches) == 16
    assert {text.get_text() for text in ax.texts} >= {"F0", "B3"}
    table, *_ = alt_text.tables_of(ax)
    assert table.columns == ["where", "what", "begin ms", "end ms"]
    assert len(table.rows) == 24 + 16
    assert "24 tasks and 16 transfers" in alt_text.text_of(ax)


def test_the_experiments_picture_tells_every_figure():
    records = load(experiment.RECORDING, recorded=True)
    figure = pictures.draw(records)
    said = alt_text.text_of(figure)
    for record in records:
        if record.predicted is not None:
            assert (
                f"{1e3 * record.summary.median:.0f} ms (model {1e3 * record.predicted:.3g})" in said
            )


def test_two_timelines_share_their_axis():
    records = by_case(load(experiment.RECORDING, recorded=True))
    seen = [(case, experiment.step(records[case])) for case in ("gpipe, ordered", "gpipe, tagged")]
    figure = pictures.steps(seen, tier="RECORDED")
    limits = {panel.get_xlim() for panel in figure.axes}
    assert len(limits) == 1


@pytest.mark.parametrize(("stages", "transfer"), [(2, 0.0), (8, 0.5)])
def test_the_explorer_draws_what_the_model_says(stages, transfer):
    ax = pictures.explore_scale(stages, 8, transfer)
    assert "bubble alone" in [label.get_text() for label in ax.get_yticklabels()]
    slow = pictures.slowness("gpipe", Channel.TAGGED, stages=stages, micro_batches=8, transfer=0.0)
    assert slow == pytest.approx((8 + stages - 1) / 8)


def test_the_puzzle_and_the_scale_are_labelled():
    assert "97 ms" in alt_text.text_of(pictures.puzzle())
    ax = pictures.at_scale(stages=(2, 4), micro_batches=4)
    assert "2 to 4 stages" in alt_text.text_of(ax)


def test_the_puzzle_shows_the_threads_figures_with_their_source():
    ax = pictures.puzzle()
    widths = [patch.get_width() for patch in ax.patches]
    assert len(widths) == 4 and widths == [way.value for way in published.WAYS.values()]
    assert {way.source for way in published.WAYS.values()} == {published.THREAD}
    said = " ".join(alt_text.of(ax.figure).stamps.values())
    assert said.startswith("PUBLISHED")
    assert published.THREAD.address in said


def test_what_deadlocks_is_said_and_not_drawn():
    ax = pictures.explore_scale(32, 32, 0.5)
    drawn = [label.get_text() for label in ax.get_yticklabels()]
    assert "eager 1f1b, ordered, receives 1 early" not in drawn
    assert "Deadlock: eager 1f1b, ordered, receives 1 early" in alt_text.text_of(ax)
