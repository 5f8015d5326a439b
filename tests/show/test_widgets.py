from pytest import approx, mark, raises

from labkit.show import widgets

LOG = widgets.log(1e-6, 1e-2, 1e-4), approx(1e-4)


STARTS = [((0.0, 1.0, 0.1, 0.5), 0.5), ((2, 10, 2, 4), 4), ([3, 1], 3), (([3, 1], 1), 1), LOG]


@mark.parametrize(("control", "start"), STARTS)
def test_each_kind_of_control_starts_where_it_says(control, start):
    assert widgets._field("x", control).value == start


@mark.parametrize("control", [5, "ab", (1,), [], ([1], 2), (1, 2, 3), (1, 2, 3, 4, 5)])
def test_what_is_no_control_is_named(control):
    with raises(ValueError, match=r"x=.* is no control"):
        widgets._field("x", control)
