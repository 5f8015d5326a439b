"""Lesson 00's figures: fitted to made-up records by hand, and measured as relations."""

from pytest import approx, mark

from course.lessons.start import experiment
from labkit.measure.records import Provenance, Record, Tier

pytestmark = mark.slow


def message(nbytes, samples):
    origin = Tier.MEASURED, Provenance.here()
    return Record("passport", "ping-pong", {}, [samples], *origin, "send", nbytes=nbytes)


def test_the_line_is_fitted_to_the_fastest_messages():
    sizes = [10, 10_000, 10_000_000]
    messages = [message(s, [50e-6 + 1e-9 * s, 40e-6 + 1e-9 * s, 60e-6 + 1e-9 * s]) for s in sizes]
    line = experiment.fitted(messages)
    assert line.alpha == approx(40e-6)
    assert line.beta == approx(1e-9)
