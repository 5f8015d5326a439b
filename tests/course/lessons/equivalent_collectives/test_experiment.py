import sys

import numpy as np
import pytest

from course.lessons.equivalent_collectives import (
    experiment,
    pictures,
    programs,
    published,
)
from course.lessons.equivalent_collectives.experiment import Setting
from course.runs import by_case
from labkit.fabric.fabric import FabricUnavailable
from labkit.measure import wire
from labkit.measure.records import Tier
from labkit.ranks import machine
from labkit.show import plots
from tests.course.comm import algorithm_bytes

LOCAL = 4 * 2 * 4096 * 4  # bytes that divide by 2 x 4096 x 4 ranks
HERE = Setting(nbytes=LOCAL, rate=None)

counted = pytest.mark.skipif(wire.unavailable() is not None, reason="no wire meter here")


@pytest.fixture(scope="module")
def local():
    return experiment.compare(experiment.CASES, HERE, iters=1)


@counted
def test_bytes_are_those_of_the_algorithms(local):
    sent = {name: record.values["sent"] for name, record in by_case(local).items()}
    assert sent["all_reduce"] == sent["reduce_scatter"] == [1.5] * 4
    assert sent["reduce_scatter + all_gather"] == [2.25] * 4
    assert sent["ring all_reduce"] == sent["ring reduce_scatter + all_gather"] == [1.5] * 4
    assert sent["ring reduce_scatter"] == sent["ring all_gather"] == [0.75] * 4
    assert sent["broadcast"] == [2, 1, 0, 0]
    assert sent["pipelined broadcast"] == [1, 1, 1, 0]


def test_two_levels_use_the_hosts_links_less():
    setting = Setting(hosts=2, ranks_per_host=2, nbytes=LOCAL)
    try:
        flat, two = experiment.compare(experiment.TWO_LEVELS, setting, iters=1)
    except FabricUnavailable as reason:
        pytest.skip(str(reason))
    assert (flat.world_size, flat.params["hosts"]) == (4, 2)
    assert setting.has(flat)
    assert not experiment.FOUR.has(flat)
    assert flat.predicted == two.predicted  # for ranks with a link each: no law of nature
    if not wire.unavailable():
        between = np.array(two.values["matrix"])[:2, 2:].sum()
        assert between == 1  # S from host to host, both ranks together; the flat ring 1.5
        assert np.array(flat.values["matrix"])[:2, 2:].sum() == 1.5
    assert "4 ranks on 2 hosts" in plots.alt_text.text_of(pictures.draw([flat, two]))


def test_every_record_says_what_it_is(local):
    table = experiment.table(local)
    columns, rows = table.columns, table.rows
    assert [row[0] for row in rows] == list(experiment.CASES)
    assert all(len(row) == len(columns) for row in rows)
    assert {record.tier for record in local} == {Tier.MEASURED}
    assert all(record.busbw > 0 for record in local)
    assert all(record.others is not None for record in local) or sys.platform != "linux"


def test_least_bytes():
    assert experiment.least("reduce_scatter + all_gather", 4) == 1.5
    assert experiment.least("ring reduce_scatter", 4) == 0.75
    assert experiment.least("tree broadcast", 8) == 1


@pytest.mark.timed
def test_two_steps_cost_what_one_costs_unless_the_library_sends_more():
    cases = ("all_reduce", "reduce_scatter + all_gather", "ring reduce_scatter + all_gather")
    for _ in range(3):  # a busy machine can only make a run slower
        try:
            found = experiment.compare(cases, experiment.FOUR)
        except FabricUnavailable as reason:
            pytest.skip(str(reason))
        one, gloos, ours = (min(record.seconds) for record in found)
        if abs(ours / one - 1) < 0.1 and 1.35 < gloos / one < 1.65:
            return
    pytest.fail(f"two steps / one: gloo's {gloos / one:.2f}, ours {ours / one:.2f}")


@pytest.mark.parametrize(
    "cases, setting",
    [
        ((*experiment.CASES, *programs.SWAPS), experiment.FOUR),
        (("all_reduce", "ring reduce_scatter + all_gather"), experiment.EIGHT),
        (experiment.BROADCASTS, experiment.EIGHT_FASTER),
    ],
)
def test_without_a_fabric_the_recorded_run_is_shown(cases, setting, monkeypatch, capsys):
    monkeypatch.setenv("LABKIT_NO_FABRIC", "test")
    found = experiment.compare_or_recorded(cases, setting)
    assert [record.case for record in found] == list(cases)
    assert {record.tier for record in found} == {Tier.RECORDED}
    assert "No fabric can be made here" in capsys.readouterr().out
    with pytest.raises(LookupError, match="has nothing of"):
        experiment.compare_or_recorded(("broadcast",), Setting(nbytes=77))
    with pytest.raises(LookupError, match=r"has nothing of Setting\(hosts=8"):
        experiment.compare_or_recorded(("swap, send posted first",), experiment.EIGHT)


def test_what_was_counted_elsewhere_is_the_algorithms():
    matrix = np.array(experiment.recorded_matrix("reduce_scatter"))
    assert (matrix.sum(axis=1) == 1.5).all()
    ours = np.array(experiment.recorded_matrix("ring reduce_scatter"))
    assert (ours == algorithm_bytes.ring_reduce_scatter(4, 4) / 4).all()


def test_pictures_have_words(local):
    figure = pictures.draw(local)
    text = plots.alt_text.text_of(figure)
    assert "4 ranks, loopback" in text
    assert "all_reduce" in text
    step = published.steps()[0]
    ax = pictures.on_trial({"as labelled": [(step, 852.0), (step, 20.0)]}, limit=published.NVLINK)
    assert "as labelled: 20 to 852 GB/s, 1 of 2 above 450" in plots.alt_text.text_of(ax)


def test_at_scale_for_every_setting_of_the_sliders():
    for nbytes, alpha, bandwidth, ranks_per_host in ((1e4, 1e-6, 1e9, 2), (1e11, 1e-3, 4e11, 16)):
        ax = pictures.at_scale(
            nbytes=nbytes, alpha=alpha, bandwidth=bandwidth, ranks_per_host=ranks_per_host
        )
        assert "At 16384 ranks the fastest is" in plots.alt_text.text_of(ax)


def test_on_a_machine_with_gpus_loopback_is_gloos_all_the_same(monkeypatch):
    monkeypatch.setattr(machine, "gpu_count", lambda: 8)
    monkeypatch.setattr(machine, "_gpu_names", lambda: ())
    (record,) = experiment.compare(["all_reduce"], HERE, iters=1)
    assert record.provenance.backend == "gloo"
    assert record.values["sent"] is not None or sys.platform != "linux"
