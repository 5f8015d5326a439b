import dataclasses
import json
import random
import re

from nbformat.v4 import new_output
from pytest import fixture, raises

from labkit.__main__ import main
from labkit.course import class_pictures as pictures
from labkit.course import classroom, edition, handin, ledger, report, run
from labkit.launch.roll_call import Node
from labkit.measure import records
from labkit.measure.records import Provenance, Record, Tier
from labkit.show.alt_text import tables_of
from tests.course.samples import lesson


@fixture(autouse=True)
def book(tmp_path, monkeypatch):
    monkeypatch.setenv("LABKIT_LEDGER", str(tmp_path / "ledger.json"))


def learner(number, folder):
    """Somebody's hand-in: a synthetic one."""
    draw = random.Random(number)
    ledger.predict("01.slope", "How much per <pair>?", "µs", value=draw.lognormvariate(4, 1))
    ledger.reconcile("01.slope", 100.0 * draw.uniform(0.8, 1.2))
    ledger.keep("passport", {"alpha": draw.uniform(1e-5, 5e-5), "beta": draw.uniform(2e-10, 1e-9)})
    ledger.passed("1.1")
    made = handin.here(name="Ada <b>" if number == 0 else "")
    return handin.save(made, folder / f"{number}.json")


def test_a_class_of_thirty_becomes_one_page(tmp_path, monkeypatch, capsys):
    files = []
    for number in range(30):
        monkeypatch.setenv("LABKIT_LEDGER", str(tmp_path / f"ledger-{number}.json"))
        files.append(str(learner(number, tmp_path)))
    out = tmp_path / "class.html"
    (tmp_path / "bad.json").write_text('{"version": 1}')
    assert main(["class", *files, str(tmp_path / "bad.json"), "--out", str(out)]) == 0
    assert "bad.json is no hand-in" in capsys.readouterr().err
    page = out.read_text()
    assert "A class of 30" in page
    assert "How much per &lt;pair&gt;?" in page and "Ada &lt;b&gt;" in page
    assert page.count("<img ") == 2 and "30 machines of" in page
    assert not re.search(r'(src|href)="http', page), "nothing from the network"


def test_a_hand_in_holds_no_name_or_path_that_was_not_typed(tmp_path):
    text = learner(1, tmp_path).read_text()
    document = json.loads(text)
    assert document["name"] == "" and str(tmp_path) not in text
    assert handin.load(tmp_path / "1.json").entries[0].counts


def test_a_hand_in_that_somebody_tampered_with_is_refused(tmp_path):
    document = json.loads(learner(1, tmp_path).read_text())
    for damage in ({"version": 2}, {"passport": {"alpha": "x"}}, {"entries": [{}]}, {"passed": 1}):
        path = tmp_path / "bad.json"
        path.write_text(json.dumps(document | damage))
        with raises(ValueError, match=r"bad\.json is no hand-in"):
            handin.load(path)


def test_progress_writes_the_hand_in(tmp_path, capsys):
    out = tmp_path / "mine.json"
    assert main(["progress", "--hand-in", str(out), "--name", "Ada"]) == 0
    assert handin.load(out).name == "Ada"


def test_the_histogram_counts_everybody_once():
    pairs = [(100, 100), (120, 100), (200, 100), (25, 100), (1e9, 1.0), (1e-9, 1.0)]
    (table,) = tables_of(pictures.predictions("?", pairs))
    counts = {name: count for name, count in table.rows if count}
    assert counts == {"right size": 2, "2×": 1, "1/4": 1, "128×": 1, "1/128": 1}


def test_an_empty_class_is_a_page_too():
    nobody = handin.HandIn("", "m", {}, (), (), ())
    assert "0 of 1 machines" in str(classroom.page([nobody]))


def measured(path):
    record = Record("other", "a case", {"n": 2}, [[1e-3, 3e-3], [2e-3, 1e-3]], Tier.MEASURED,
                    Provenance.here(), collective="all_reduce", nbytes=1000)  # fmt: skip
    return records.save([record], path)


def test_the_report_recomputes_from_samples_and_embeds_them(tmp_path):
    path, out = measured(tmp_path / "other.json"), tmp_path / "report.html"
    assert main(["report", str(path), "--out", str(out)]) == 0
    page = out.read_text()
    assert "2500" in page, "the median of the slowest rank per iteration, in µs"
    embedded = re.search(r'<script [^>]*id="records-other">(.*?)</script>', page, re.S)
    assert json.loads(embedded[1])["records"][0]["samples"] == [[1e-3, 3e-3], [2e-3, 1e-3]]


def test_runs_of_one_experiment_stand_side_by_side_with_every_node(tmp_path):
    mine = measured(tmp_path / "mine" / "other.json")
    (record,) = records.load(mine)
    there = dataclasses.replace(record.provenance.machine, cpu_model="Abacus 9", memory=1)
    nodes = (Node((0, 1), there), Node((2, 3), there))
    origin = dataclasses.replace(record.provenance, machine=there, nodes=nodes)
    cluster = dataclasses.replace(
        record, samples=[[1e-4, 2e-4]] * 2, nbytes=8000, provenance=origin
    )
    theirs = records.save([cluster], tmp_path / "theirs" / "other.json")
    assert records.load(theirs)[0].provenance == origin
    page = str(report.page({path: report._load(path) for path in (mine, theirs)}))
    assert "2 runs side by side" in page and "busbw [MB/s]" in page
    assert "node 0, ranks 0 to 1" in page and "node 1, ranks 2 to 3" in page
    assert "RECORDED, 2 nodes, the first Abacus 9" in page
    assert 'id="records-mine/other"' in page and 'id="records-theirs/other"' in page
    assert str(tmp_path) not in page


def test_only_what_comes_from_elsewhere_is_called_recorded(tmp_path):
    (mine,) = records.load(measured(tmp_path / "a.json"))
    there = dataclasses.replace(mine.provenance.machine, cpu_model="Abacus 9")
    theirs = dataclasses.replace(
        mine, provenance=dataclasses.replace(mine.provenance, machine=there)
    )
    path = records.save([mine, theirs], tmp_path / "mixed.json")
    assert [record.tier for record in report._load(path)] == [Tier.MEASURED, Tier.RECORDED]


def test_runs_without_a_case_in_common_are_told_so(tmp_path):
    (record,) = records.load(measured(tmp_path / "a.json"))
    records.save([dataclasses.replace(record, case="another")], tmp_path / "b.json")
    files = [tmp_path / "a.json", tmp_path / "b.json"]
    page = str(report.page({path: report._load(path) for path in files}))
    assert "a and b have no case in common" in page


def test_the_report_takes_the_latest_of_each_experiment(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["report"]) == 1
    assert "labkit run" in capsys.readouterr().err
    for day in ("20260101", "20260102"):
        measured(tmp_path / run.RUNS / day / "gloo-scaling.json")
    (found,) = run.found_runs()
    assert "20260102" in str(found)


def test_a_file_that_holds_no_records_is_named(tmp_path, capsys):
    path = tmp_path / "x.json"
    path.write_text("{}")
    assert report.main(type("Options", (), {"files": [path], "out": tmp_path / "r"})) == 2
    assert "x.json" in capsys.readouterr().err


def test_the_edition_shows_pictures_in_place_of_widgets():
    notebook = lesson("1")
    data = {edition._WIDGET: {"model_id": "x"}, "text/html": "<img alt='the picture'>"}
    notebook.cells[0].outputs = [new_output("display_data", data)]
    page = edition.page(notebook)
    assert 'alt="the picture"' in page and not re.search(r'"model_id":\s*"x"', page)
    assert "<script" not in page and "cdn" not in page, "nothing from the network"
