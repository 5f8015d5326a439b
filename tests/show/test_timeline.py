from matplotlib.patches import FancyArrowPatch, Rectangle

from labkit.show.alt_text import tables_of, text_of
from labkit.show.timeline import Arrow, Bar, draw_lanes


def test_bars_and_arrows_are_drawn_in_their_lanes_and_listed():
    bars = [Bar(0, "F", 0.0, 0.010, label="F0"), Bar(1, "F", 0.012, 0.022), Bar(1, "B", 0.03, 0.04)]
    arrows = [Arrow(0, 0.010, 1, 0.012, "F", label="F0")]
    ax = draw_lanes(["a", "b"], bars, arrows=arrows, description="A sends to b.")
    drawn = [patch for patch in ax.patches if isinstance(patch, Rectangle)]
    assert [(p.get_x(), round(p.get_width(), 9)) for p in drawn] == [(0, 10), (12, 10), (30, 10)]
    assert sum(isinstance(patch, FancyArrowPatch) for patch in ax.patches) == 1
    assert [text.get_text() for text in ax.texts] == ["F0", "F0"]  # in its bar, beside its arrow
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["F", "B"]
    assert text_of(ax) == "A sends to b." and ax.get_xlim() == (0.0, 40.0)
    (table,) = tables_of(ax)
    assert table.rows[-1] == ["a → b", "F0", 10.0, 12.0] and len(table.rows) == 4


def test_an_arrow_bears_its_name_on_its_left_where_the_right_is_taken_or_not_at_all():
    bars = [Bar(0, "F", 0.0, 1.0), Bar(1, "F", 0.0, 1.0)]
    begins = {"alone": 0.1, "left": 0.5, "none": 0.51, "right": 0.52}
    arrows = [Arrow(0, at, 1, at, "F", label=name) for name, at in begins.items()]
    ax = draw_lanes(["a", "b"], bars, arrows=arrows, description="A sends to b.")
    places = {text.get_text(): text.get_position()[0] / 1e3 for text in ax.texts}
    sides = {name: "left" if at < begins[name] else "right" for name, at in places.items()}
    assert sides == {"alone": "right", "left": "left", "right": "right"}


def test_what_runs_behind_is_thin_and_below():
    both = [Bar(0, "compute", 0, 1), Bar(0, "move", 0, 1, behind=True)]
    above, below = draw_lanes(["a"], both, description="Hidden.").patches
    assert below.get_height() < above.get_height() and below.get_y() > above.get_y()
