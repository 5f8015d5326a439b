import sys
import types

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


def sample_record():
    return Record("sample", "a", {}, [[1.0], [2.0]], Tier.MEASURED, Provenance.here())


def test_run_prints_a_table_and_keeps_records_and_picture(monkeypatch, capsys, tmp_path):
    def draw(records):
        ax = plots.new_axes("Sample")
        plots.bars(ax, ["a"], [records[0].summary.median])
        return ax.figure

    def measure(*, quick, progress):
        progress("half way")
        return [sample_record()]

    module = types.SimpleNamespace(TITLE="A sample", run=measure)
    package = "course.lessons.gloo_scaling"
    pictures = types.SimpleNamespace(draw=draw)
    monkeypatch.setitem(sys.modules, f"{package}.experiment", module)
    monkeypatch.setitem(sys.modules, f"{package}.pictures", pictures)
    out = tmp_path / "deep" / "x.json"
    assert main(["run", "gloo-scaling", "--quick", "--out", str(out)]) == 0
    printed = capsys.readouterr()
    assert "half way" in printed.err
    assert "MEASURED" in printed.out
    assert records.load(out)[0].summary.median == 2.0
    assert out.with_suffix(".png").stat().st_size > 1000


@mark.parametrize("experiment", catalogue.experiments().values(), ids=lambda one: one.name)
def test_each_record_has_a_row_with_its_time(experiment):
    recorded = experiment.recorded()
    rows = run.tabulate(recorded).rows
    assert [row[0] for row in rows] == [record.case for record in recorded]
    assert [row[4] for row in rows] == approx([1e3 * r.summary.median for r in recorded], rel=1e-3)
