"""Lesson 0's figures: drawn from made-up records by hand, and measured as relations."""

from pytest import approx, fixture, mark

from course.lessons.start import experiment
from labkit.measure.records import Provenance, Record, Tier
from labkit.ranks.machine import Machine


def message(nbytes, samples, case="ping-pong"):
    origin = Provenance.here()
    return Record("passport", case, {}, [samples], Tier.MEASURED, origin, "send", nbytes=nbytes)


def small_call(seconds, **values):
    samples = [[seconds], [seconds]]
    return Record("passport", "small", {}, samples, Tier.MEASURED, Provenance.here(), values=values)


def test_the_passport_is_drawn_from_the_records():
    sizes = [10, 10_000, 10_000_000]
    messages = [message(s, [50e-6 + 1e-9 * s, 40e-6 + 1e-9 * s, 60e-6 + 1e-9 * s]) for s in sizes]
    copied = message(2**18, [4e-6, 3e-6, 5e-6], "copy")
    drawn = experiment.passport([*messages, copied, small_call(300e-6, on_cpu=120e-6)])
    assert drawn.alpha == approx(40e-6), "of the fastest messages"
    assert drawn.beta == approx(1e-9)
    assert drawn.link.time(1000) == approx(41e-6)
    assert drawn.copy == approx(2**18 / 3e-6), "the fastest copy"
    assert (drawn.call, drawn.cpu_per_call) == (300e-6, 120e-6)
    assert drawn.cores == Machine.here().cores


def test_without_scheduler_statistics_a_call_is_taken_for_cpu_time():
    records = [message(1, [1e-5]), message(1000, [2e-5]), message(1, [1.0]), small_call(300e-6)]
    assert experiment.passport(records).cpu_per_call == 300e-6


@fixture(scope="module")
def records():
    return experiment.run(quick=True)


def test_every_size_is_measured_on_rank_0_alone(records):
    *messages, copied, small = records
    assert [record.nbytes for record in messages] == list(experiment.SIZES)
    assert [record.world_size for record in messages] == [1] * len(messages)
    assert copied.world_size == small.world_size == 2
    assert all(record.others is not None for record in records)


@mark.timed
def test_large_messages_take_longer_and_reach_more(records):
    *messages, _, _ = records
    smallest, largest = messages[0], messages[-1]
    assert min(largest.seconds) > 5 * min(smallest.seconds)  # 64 MiB against 4 bytes
    drawn = experiment.passport(records)
    assert 4 * drawn.copy > max(record.algbw for record in messages), "a bound"
    assert 0 < drawn.alpha < largest.summary.median
