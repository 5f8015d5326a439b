import sys
import types
from dataclasses import replace

from pytest import approx, mark, raises

from course import catalogue
from course.__main__ import main
from course.commands import run
from labkit.measure import records
from labkit.measure.records import Provenance, Record, Tier
from labkit.show import plots


def test_without_a_right_name_nothing_runs_and_all_names_are_listed(monkeypatch, capsys):
    monkeypatch.setattr(run, "_run", lambda *_, **__: 1 / 0)
    for wrong in (["run"], ["run", "gloo-scalling"]):
        assert main(wrong) == 2
        printed = "".join(capsys.readouterr())
        assert all(name in printed for name in catalogue.experiments())
        assert wrong[1:] or "--all" in printed
    assert main(["run", "a", "b", "--out", "x.json"]) == 2
    assert "name one" in capsys.readouterr().err
    with raises(ZeroDivisionError):
        main(["run", "--all"])


def test_run_prints_a_table_and_keeps_records_and_picture(monkeypatch, capsys, tmp_path):
    def measure(*, quick, progress):
        progress("half way")
        record = Record("sample", "a", {}, [[1.0], [2.0]], Tier.MEASURED, Provenance.here())
        return [record, replace(record, others=0.5), replace(record, others=0.125)]

    module = types.SimpleNamespace(
        TITLE="A sample", run=measure, draw=lambda _: plots.new_axes("Sample").figure
    )
    for name in ("experiment", "pictures"):
        monkeypatch.setitem(sys.modules, f"course.lessons.gloo_scaling.{name}", module)
    out = tmp_path / "deep" / "x.json"
    assert main(["run", "gloo-scaling", "--quick", "--out", str(out)]) == 0
    printed = capsys.readouterr()
    assert "half way" in printed.err and "MEASURED" in printed.out
    assert "other programs used up to 0.50 CPUs" in printed.out
    assert records.load(out)[0].summary.median == 2.0
    assert out.with_suffix(".png").stat().st_size > 1000


def test_where_nothing_is_measured_no_file_is_left(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(run, "_run", lambda *_, **__: [])
    new, kept = tmp_path / "new.json", tmp_path / "kept.json"
    kept.write_text("of an earlier run")
    for out in (new, kept):
        assert main(["run", "rails", "--out", str(out)]) == 0
        assert "Nothing was measured here: no file is written." in capsys.readouterr().out
    assert [*tmp_path.iterdir()] == [kept] and kept.read_text() == "of an earlier run"
    monkeypatch.setattr(run, "_run", lambda *_, **__: 1 / 0)
    with raises(ZeroDivisionError):
        main(["run", "rails", "--out", str(new)])
    assert [*tmp_path.iterdir()] == [kept]


RECORDED = [x for x in catalogue.experiments().values() if x.recording.exists()]


@mark.parametrize("lesson", RECORDED, ids=lambda lesson: lesson.number)
def test_each_record_has_a_row_with_its_time(lesson):
    recorded = lesson.recorded()
    table = run.tabulate(recorded)
    rows, place = table.rows, table.columns.index("ms")
    assert [row[0] for row in rows] == [record.case for record in recorded]
    medians = [1e3 * record.summary.median for record in recorded]
    assert [row[place] for row in rows] == approx(medians, rel=1e-3)
