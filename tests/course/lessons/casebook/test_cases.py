"""Each case shows its symptom, its cure reaches par, every suspect is decided by a measurement."""

import json
import os
from pathlib import Path

import pytest

from course.__main__ import main
from course.lessons.casebook import cases, observe, on_links, pictures, published
from course.lessons.casebook.cases import CASES
from course.lessons.casebook.observe import INSTRUMENTS
from course.lessons.casebook.ward import Lanes, Ward, run
from labkit.measure.tables import Table
from labkit.show import alt_text
from tests.fabric.test_fabric import needs_hosts
from tests.ranks import leftovers

NAMES = [
    pytest.param(name, marks=needs_hosts if case.fabric else ()) for name, case in CASES.items()
]


@pytest.mark.timed
@pytest.mark.parametrize("name", NAMES)
def test_a_case_is_decided_by_its_instruments_and_cured(name):
    case = CASES[name]
    assert case.culprit in case.suspects and len(case.suspects) >= 3
    undecided, results, before, after = dict(case.suspects), [], [], []
    for _ in range(4):  # what other programs disturbed is measured again
        runs = {one.instrument: None for one in undecided.values()} or {"timeline": None}
        for instrument in runs:
            runs[instrument] = run(case, instrument=instrument)
        for key, suspect in list(undecided.items()):
            guilty = suspect.reading(runs[suspect.instrument]) > suspect.limit
            if guilty == (key == case.culprit):
                del undecided[key]
        cured = run(case, case.cure)
        results += [[one["result"] for one in seen] for seen in (*runs.values(), cured)]
        before += map(case.cost, runs.values())
        after.append(case.cost(cured))
        if not undecided and min(before) / min(after) >= case.par:
            break
    assert not undecided
    assert all(result == results[0] for result in results)
    assert min(before) / min(after) >= case.par


def test_every_case_is_told_with_its_sources():
    for case in CASES.values():
        assert all(report.quotation and report.source.when for report in case.report)
        assert case.production and case.not_when
        assert {suspect.instrument for suspect in case.suspects.values()} <= set(INSTRUMENTS)
    assert {*CASES} >= {"interface", "late-rank", "overlap", "two-hosts"} and len(CASES) == 12


@pytest.fixture
def ledger(tmp_path, monkeypatch):
    monkeypatch.setenv("LABKIT_LEDGER", str(tmp_path / "ledger.json"))
    return tmp_path / "ledger.json"


def test_a_diagnosis_is_answered_by_a_measurement_and_counted(ledger):
    ward = Ward(CASES["metrics"])
    refuted = ward.diagnose("calls")
    assert isinstance(refuted, Table) and refuted.title.startswith("No:")
    assert "6 calls" in refuted.title and len(refuted.rows) == CASES["metrics"].world_size
    assert ward.asked == ["call counts"]
    assert ward.diagnose("objects").title.startswith("Yes:")
    assert '"diagnosed": true' in ledger.read_text()
    with pytest.raises(ValueError, match="there are"):
        ward.diagnose("gremlins")
    with pytest.raises(ValueError, match="there are"):
        ward.ask("stethoscope")


@pytest.mark.parametrize("instrument", [one for one in INSTRUMENTS if one != "case file"])
def test_every_instrument_shows_every_rank(ledger, instrument):
    answer = Ward(CASES["late-rank"]).ask(instrument)
    told = str(answer)
    ranks = range(CASES["late-rank"].world_size)
    assert all(any(str(rank) in line.split()[:2] for line in told.splitlines()) for rank in ranks)
    assert "<" in answer.html()


def test_the_case_file_says_who_waits_for_whom_and_leaves_nothing_behind(ledger):
    ward = Ward(CASES["late-rank"])
    run(ward.case)  # the fork server is up
    before = leftovers.of(os.getpid())
    told = str(ward.ask("case file"))
    assert "all_reduce(gradient)" in told or "time.sleep" in told
    assert len(told.splitlines()) == 2 + ward.case.world_size
    assert leftovers.of(os.getpid()) == before


@needs_hosts
def test_a_case_on_hosts_leaves_nothing_behind(ledger):
    ward = Ward(CASES["interface"])
    run(ward.case)
    before = leftovers.of(os.getpid()), leftovers.children_of(os.getpid())
    told = ward.ask("environment")
    assert "eth1 10.78.0.1" in str(told)
    assert (leftovers.of(os.getpid()), leftovers.children_of(os.getpid())) == before


def test_a_case_is_played_in_a_terminal(capsys, monkeypatch, ledger):
    words = iter(["nonsense", "call counts", "late"])
    monkeypatch.setattr("builtins.input", lambda _: next(words))
    assert main(["case", "late-rank"]) == 0
    told = capsys.readouterr().out
    assert (
        "load imbalance" in told
        and "no such word" in told
        and "Yes:" in told
        and "times better" in told
    )
    assert "in production" in told


def span(phase, begin, end):
    return observe.Span(phase, begin, end, 0.0)


def test_a_timeline_in_text_shows_inner_phases_and_gaps():
    seen = [{"rank": 0, "spans": [span("collect", 1, 2), span("step", 0, 4), span("sum", 8, 9.6)]}]
    told = str(Lanes(seen, "title")).splitlines()
    assert told[0] == "title" and told[-1].endswith("c collect, s step, u sum")
    lane = told[1].split("|")[1]
    assert len(lane) == 96 and lane[15] == "c" and lane[0] == lane[30] == "s"
    assert lane[60] == "." and lane[95] == "u"
    assert "9600.0 ms of 1 ranks" in alt_text.text_of(Lanes(seen, "t").draw())


def test_a_tree_of_two_servers_sends_less_than_busbw_assumes():
    assert cases.modelled_busbw("tree", 2, 8) == 1.875
    assert cases.modelled_busbw("tree", 3, 8) == pytest.approx(23 / 24)
    assert {cases.modelled_busbw("ring", servers, 8) for servers in (2, 3, 6)} == {1}


@needs_hosts
@pytest.mark.timed
def test_double_tree_and_ring_send_what_the_model_says():
    case = CASES["two-hosts"]
    seen = run(case, instrument="wire meter")
    sums = [one["result"] for one in seen]
    assert sums[0] == [0 + 1 + 2 + 3, 28] and sums[7] == [28]
    nbytes = 4 * on_links.LENGTH
    sent = [one["through"]["eth0"] for one in seen]  # a host's counter: both ranks see it
    ends, inner = sent[6] / nbytes, sent[4] / nbytes
    assert ends == pytest.approx(1, rel=0.1) and inner == pytest.approx(2, rel=0.1)


def test_pictures_of_laws_say_what_was_reported():
    law = pictures.law({4: 0.1, 8: 0.2}, {4: 0.1, 644: 20.0}, published.CONNECT, (128, 256, 644))
    assert "742 s with 644" in alt_text.text_of(law)
    seen, model = {"tree": {2: 1.5, 4: 0.9}}, {"tree": {2: 1.875, 6: 0.98}}
    told = alt_text.text_of(pictures.hosts(seen, model, published.HOSTS, 100))
    assert "tree: 1.50 with 2" in told and "40 with 6" in told


def test_buttons_ask_and_diagnose(ledger):
    pictures.buttons(Ward(CASES["groups"]))  # shown, or its static text printed


def test_the_notebook_plays_every_case():
    notebook = Path(__file__).parents[4] / "notebooks/08_casebook.ipynb"
    cells = json.loads(notebook.read_text())["cells"]
    code = "".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    assert [name for name in CASES if f'CASES["{name}"]' not in code] == []
