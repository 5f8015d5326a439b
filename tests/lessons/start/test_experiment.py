"""Lesson 0's figures: drawn from made-up records by hand, and measured as relations."""

from pytest import approx, fixture, mark

from labkit.launch.machine import Machine
from labkit.lessons.start import experiment
from labkit.measure.records import Provenance, Record, Tier


def message(nbytes, samples):
    origin = Provenance.here()
    return Record(
        "passport", "ping-pong", {}, [samples], Tier.MEASURED, origin, "send", nbytes=nbytes
    )


def small_call(seconds, **values):
    samples = [[seconds], [seconds]]
    return Record("passport", "small", {}, samples, Tier.MEASURED, Provenance.here(), values=values)


def test_the_passport_is_drawn_from_the_records():
    sizes = [10, 10_000, 10_000_000]
    messages = [message(s, [50e-6 + 1e-9 * s, 40e-6 + 1e-9 * s, 60e-6 + 1e-9 * s]) for s in sizes]
    drawn = experiment.passport([*messages, small_call(300e-6, on_cpu=120e-6)])
    assert drawn.alpha == approx(40e-6), "of the fastest messages"
    assert drawn.beta == approx(1e-9)
    assert drawn.link.time(1000) == approx(41e-6)
    assert drawn.ceiling == approx(10_000_000 / 10_040e-6), "the best sample of the best size"
    assert (drawn.call, drawn.cpu_per_call) == (300e-6, 120e-6)
    assert drawn.cores == Machine.here().cores
    assert experiment.Passport(**drawn.to_dict()) == drawn, "it can be kept in the ledger"


def test_without_scheduler_statistics_a_call_is_taken_for_cpu_time():
    messages = [message(1, [1e-5]), message(1000, [2e-5])]
    assert experiment.passport([*messages, small_call(300e-6)]).cpu_per_call == 300e-6


@fixture(scope="module")
def records():
    return experiment.run(quick=True)


def test_every_size_is_measured_on_rank_0_alone(records):
    *messages, small = records
    assert [record.nbytes for record in messages] == list(experiment.SIZES)
    assert [record.world_size for record in messages] == [1] * len(messages)
    assert small.world_size == 2


@mark.timed
def test_large_messages_take_longer_and_reach_more(records):
    *messages, _ = records
    smallest, largest = messages[0], messages[-1]
    assert min(largest.seconds) > 5 * min(smallest.seconds)  # 64 MiB against 4 bytes
    drawn = experiment.passport(records)
    assert drawn.ceiling >= max(record.algbw for record in messages)
    assert 0 < drawn.alpha < largest.summary.median


def test_the_table_has_a_row_per_record(records):
    table = experiment.table(records)
    columns, rows = table.columns, table.rows
    assert len(rows) == len(records)
    assert all(len(row) == len(columns) for row in rows)
    assert rows[0][1] == 4
    assert rows[-1][-1] == "", "a call of several ranks has no bandwidth of its own here"
