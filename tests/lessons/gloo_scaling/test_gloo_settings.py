"""Lazy connections and thread settings, at tiny sizes: relations only."""

from pytest import fixture, mark

from labkit import launch
from labkit.lessons.gloo_scaling import gloo_settings


@fixture(scope="module")
def connections():
    return {record.case: record for record in gloo_settings.connections(6, iters=3)}


def test_an_eager_group_connects_to_everybody_a_lazy_one_to_nobody(connections):
    eager, lazy = connections["eager"].values, connections["lazy"].values
    assert eager["descriptors"] - lazy["descriptors"] == 5, "a connection per peer, of 6 ranks"
    assert eager["on_first_use"] == 0
    assert lazy["on_first_use"] == 2, "a ring needs its two neighbours only"
    assert eager["threads"] == lazy["threads"] > 0


@mark.timed
def test_connecting_later_makes_groups_cheaper_to_create(connections):
    assert connections["lazy"].summary.median < connections["eager"].summary.median


def test_thread_settings_reach_the_ranks_and_the_parts_make_the_whole(monkeypatch):
    asked = []

    def listening_launch(*args, threads, **options):
        asked.append(threads)
        return launch(*args, threads=threads, **options)

    monkeypatch.setattr(gloo_settings, "launch", listening_launch)
    one, three = gloo_settings.threads([1, 3], calls=4, iters=3)
    assert asked == [1, 3]
    assert [one.params["threads"], three.params["threads"]] == [1, 3]
    assert [one.case, three.case] == ["1 thread", "3 threads"]
    for record in (one, three):
        longest = max(record.seconds)
        assert 0 < record.values["matmul"] <= longest
        assert 0 < 4 * record.values["per_call"] <= longest


def test_threads_are_one_and_the_machines_default_unless_told(monkeypatch):
    monkeypatch.setattr(gloo_settings, "usable_cpus", lambda: 2)
    records = gloo_settings.threads(calls=1, iters=1)
    assert [record.params["threads"] for record in records] == [1, 2]
