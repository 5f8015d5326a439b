from pytest import mark, raises

from labkit.show import plots, widgets


def line_of(n, slope):
    ax = plots.new_axes(f"{n} ranks", x="n", y="t")
    plots.line(ax, [0, n], [0, slope * n])
    plots.describe(ax, f"{n} ranks, slope {slope:g}")
    return ax


def test_moving_a_slider_redraws_the_picture():
    slopes = widgets.log(1e-6, 1e-2, 1e-4)
    box = widgets.explore(line_of, title="Try <it>", n=(2, 64, 1, 33), slope=slopes)
    heading, ranks, _, picture, _ = box.children
    assert "Try &lt;it&gt;" in heading.value
    assert 'alt="33 ranks, slope 0.0001"' in picture.value
    ranks.value = 8
    assert 'alt="8 ranks' in picture.value


@mark.parametrize(
    ("control", "start"),
    [((0.0, 1.0, 0.1, 0.5), 0.5), ((2, 10, 2, 4), 4), ([3, 1], 3), (([3, 1], 1), 1)],
)
def test_each_kind_of_control_starts_where_it_says(control, start):
    assert widgets._field("x", control).value == start


@mark.parametrize("control", [5, "ab", (1,), [], ([1], 2), (1, 2, 3), (1, 2, 3, 4, 5)])
def test_what_is_no_control_is_named(control):
    with raises(ValueError, match=r"x=.* is no control"):
        widgets._field("x", control)
