"""The time of a message, against figures worked out by hand."""

import numpy as np
from pytest import approx, mark, raises

from course.comm.costs import AlphaBeta


def test_time_is_latency_plus_bytes():
    link = AlphaBeta(alpha=20e-6, beta=2e-9)
    assert (link.time(0), link.time(5000)) == approx((20e-6, 30e-6))
    assert (link.bandwidth, link.half_nbytes) == approx((0.5e9, 10_000))


SIZES = [4**k for k in range(2, 13)]


def test_a_fit_finds_the_parameters_that_made_the_data():
    factors = np.random.default_rng(0).uniform(0.9, 1.1, size=(20, len(SIZES)))
    times = (30e-6 + 0.4e-9 * np.array(SIZES)) * factors
    fitted = AlphaBeta.fit(np.tile(SIZES, 20), times.ravel())
    assert (fitted.alpha, fitted.beta) == approx((30e-6, 0.4e-9), rel=0.1)


def test_a_fit_gives_small_messages_a_vote():
    """The largest message 10 % off: a plain least-squares line would move alpha by far more."""
    times = [30e-6 + 0.4e-9 * size for size in SIZES[:-1]] + [1.1 * 0.4e-9 * SIZES[-1]]
    assert AlphaBeta.fit(SIZES, times).alpha == approx(30e-6, rel=0.05)


def test_parameters_are_never_negative_and_a_steep_curve_leaves_latency_to_the_smallest():
    falling = AlphaBeta.fit([1000, 2000, 4000], [50e-6, 20e-6, 10e-6])
    assert falling.alpha > 0 and falling.beta > 0
    fitted = AlphaBeta.fit([1000, 2000, 4000], [10e-6, 30e-6, 90e-6])
    assert fitted.alpha == 10e-6
    assert fitted.beta == approx(15e-9)  # of (30 - 10) / 2000 and (90 - 10) / 4000, the median


TOO_LITTLE = [
    ([100, 100], [1e-6, 2e-6], "at least two sizes"),
    ([100, 200, 300], [1e-6, 2e-6], "got 3 sizes and 2 times"),
    ([100, 200], [1e-6, float("nan")], "positive times"),
]


@mark.parametrize(("sizes", "times", "message"), TOO_LITTLE)
def test_a_fit_without_enough_data_is_refused(sizes, times, message):
    with raises(ValueError, match=message):
        AlphaBeta.fit(sizes, times)
