"""Each claim of lesson 03 fails with records in which it is false."""

import dataclasses
from types import SimpleNamespace

import pytest

from course.lessons.coalesced_broadcast import experiment as problem
from course.lessons.coalesced_broadcast.programs import CASES, ONE_BY_ONE
from course.runs import by_case
from labkit.measure.records import load
from tests.course.lessons.cells import Cells, ClaimFailed

CELLS = Cells("03_coalesced_broadcast")
SPECS = CELLS.imported["resnet50"]()
FIXED = ["1 MB", "10 MB", "25 MB", "250 MB"]


def recorded(place):
    return [r for r in load(problem.RECORDING, recorded=True) if r.params["place"] == place]


HERE, HOSTS = recorded("loopback, 2 ranks"), recorded("2 hosts")
RUNS = by_case(HERE)
MS = {name: 1e3 * run.summary.median for name, run in RUNS.items()}


def names(records=HERE, **others):
    """What the cells before have left behind."""
    runs = by_case(records)
    ms = {name: 1e3 * run.summary.median for name, run in runs.items() if name in CASES}
    faults = {name: run.values["faults"] for name, run in runs.items() if name in CASES}
    return {
        "records": records, "runs": runs, "ms": ms, "faults": faults, "fixed": FIXED,
        "specs": SPECS, "best": min(FIXED, key=ms.get), "pages": 1.0,
        "model": problem.model_of(records),
    } | others  # fmt: skip


def changed(case, *, seconds=None, records=HERE, **values):
    """The records, with one case that took other seconds, or has other values."""
    return [
        dataclasses.replace(
            record,
            values=record.values | values,
            samples=record.samples if seconds is None else [[seconds]] * record.world_size,
        )
        if record.case == case
        else record
        for record in records
    ]


def stub(records):
    return SimpleNamespace(**vars(problem) | {"measure": lambda *_, **__: records})


def fails(claim, *cells, **given):
    with pytest.raises(ClaimFailed) as failure:
        CELLS.run(*cells, **given)
    assert claim in " ".join(str(failure.value).split())


@pytest.fixture(autouse=True)
def ledger(tmp_path, monkeypatch):
    monkeypatch.setenv("LABKIT_LEDGER", str(tmp_path / "ledger.json"))


@pytest.mark.parametrize(
    ("claim", "false"),
    [
        ("the best bucket beats one by one", changed(ONE_BY_ONE, seconds=1e-3)),
        ("the largest bucket is not the best", changed("250 MB", seconds=1e-3)),
    ],
)
def test_buckets_on_loopback(claim, false):
    CELLS.run("loopback-run", problem=stub(HERE))
    fails(claim, "loopback-run", problem=stub(false))


@pytest.mark.parametrize(
    ("cell", "claim", "false"),
    [
        ("phases-run", "packing takes longer into one large", changed("250 MB", pack=1e-3)),
        ("in-turn-run", "overlap is the smaller part", changed("25 MB, in turn", seconds=0.15)),
        ("faults-run", "one fault for each 4 KiB", changed("250 MB", faults=12_000)),
        ("kept-assert", "fault hardly ever", changed("250 MB, buffers kept", faults=20_000)),
        ("kept-assert", "packing into them is faster", changed("250 MB, buffers kept", pack=1.0)),
        ("peak-run", "two neighbours at a time", changed("10 MB", peak=100_000_000)),
        ("torch-run", "not the fastest on loopback", changed("torch's own, 250 MB", seconds=1e-3)),
    ],
)
def test_explanations(cell, claim, false):
    CELLS.run(cell, **names())
    fails(claim, cell, **names(false))


@pytest.mark.parametrize(
    ("claim", "false"),
    [
        ("buckets beat one by one between hosts", changed("10 MB", seconds=1.0, records=HOSTS)),
        ("between hosts all buckets are alike", changed("25 MB", seconds=0.2, records=HOSTS)),
    ],
)
def test_buckets_between_hosts(claim, false):
    CELLS.run("hosts-run", **names(), problem=stub(HOSTS))
    fails(claim, "hosts-run", **names(), problem=stub(false))


def test_the_model():
    given = {"hosts": "2 hosts", "ms_hosts": {r.case: 1e3 * r.summary.median for r in HOSTS[1:]}}
    CELLS.run("model-assert", **names(), records_hosts=HOSTS, **given)
    wrong = [dataclasses.replace(r, predicted=r.predicted and 9.0) for r in HOSTS]
    fails("right within half", "model-assert", **names(), records_hosts=wrong, **given)
    false = [dataclasses.replace(r, predicted=1e-6) if r.case == ONE_BY_ONE else r for r in HERE]
    fails("the model prefers buckets", "model-assert", **names(false), records_hosts=HOSTS, **given)


def test_the_buffers_in_every_forward():
    def run(*args, sync, **kwargs):
        return [{True: [sync] * 3, False: [0.001] * 3}] * 2

    for sync, holds in ((0.005, True), (0.001, False)):
        given = {"launch": lambda *_, sync=sync, **__: run(sync=sync), "forwards": None}
        given |= {"default": 100.0}
        if holds:
            CELLS.run("buffers-run", **given)
        else:
            fails("most of such a forward", "buffers-run", **given)


class NoFabric:
    """Hosts that cost nothing to make, for launches that are not made either."""

    @staticmethod
    def star(**_):
        return NoFabric()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return False


def test_the_chain():
    for chain, holds in ((0.1, True), (0.3, False)):
        given = {"launch": lambda *_, chain=chain, **__: [([0.2], [chain])] * 4, "Fabric": NoFabric}
        if holds:
            CELLS.run("chain-run", **given)
        else:
            fails("a chain of pieces beats a tree", "chain-run", **given)


def test_the_readers():
    ways = CELLS.run("readers-program")["WAYS"]
    for shares, holds in ((0.1, True), (0.3, False)):
        took = dict(zip(ways, (0.2, 0.2, shares), strict=True))

        def launch(program, way, took=took, **_):
            return [[took[way]]] * 6

        given = {"launch": launch, "Fabric": NoFabric, "WAYS": ways, "start_up": None}
        if holds:
            CELLS.run("readers-run", **given)
        else:
            fails("shares beat one reader and all readers", "readers-run", **given)


def test_every_claim_of_the_lesson_is_tried():
    assert CELLS.untried(__file__) == []
