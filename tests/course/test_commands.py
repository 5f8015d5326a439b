import subprocess
import sys
import types
from pathlib import Path

from pytest import mark, raises

from labkit.__main__ import COMMANDS, main
from labkit.course import doctor, health, lessons, start
from labkit.course.health import Finding
from labkit.measure import records
from labkit.measure.records import Provenance, Record, Tier
from labkit.measure.tables import Table
from labkit.show import plots

ROOT = Path(__file__).resolve().parents[2]


def test_every_command_has_help_and_only_its_module_is_imported():
    for name in COMMANDS:
        with raises(SystemExit) as ended:
            main([name, "--help"])
        assert ended.value.code == 0
    program = "import sys, labkit.__main__ as m\ntry: m.main(['--help'])\nexcept SystemExit: pass"
    program += "\nprint('torch' in sys.modules, 'matplotlib' in sys.modules)"
    code = [sys.executable, "-c", program]
    done = subprocess.run(code, capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.splitlines()[-1].endswith("False")


def test_an_unknown_command_lists_the_right_ones(capsys):
    with raises(SystemExit):
        main(["strat"])
    assert "start" in capsys.readouterr().err


def test_this_machine_can_run_the_course(capsys):
    assert main(["doctor"]) == 0
    told = capsys.readouterr().out
    assert "The course can run here." in told
    assert "started, summed and ended" in told


def test_a_missing_essential_is_told_with_its_remedy_and_fails():
    findings = [Finding("Python", "3.11"), Finding("torch", "none", "missing", "All.", "Install.")]
    lines = doctor.told(findings)
    assert lines[-1] == "The course cannot run yet. First see to: torch."
    assert any("Install." in line for line in lines)
    assert not health.can_run(findings)


@mark.parametrize(("quota", "state"), [(None, "ok"), (0.5, "note")])
def test_a_cpu_quota_below_the_shown_cpus_is_noted(monkeypatch, quota, state):
    monkeypatch.setattr(health.machine, "cpu_quota", lambda: quota)
    monkeypatch.setattr(health.machine, "usable_cpus", lambda: 4)
    found = health.cpus()
    assert found.state == state
    if quota:
        assert "0.5 CPUs' worth" in found.found and "cpuset" in found.remedy


def test_a_check_that_breaks_is_a_note_unless_it_is_essential(monkeypatch):
    def broken():
        raise OSError("no such luck")

    assert health._safely(broken).state == "note"
    monkeypatch.setattr(health, "_ESSENTIAL", {broken})
    found = health._safely(broken)
    assert found.state == "missing" and "no such luck" in found.found


def test_start_gives_jupyterlab_its_own_options():
    parser = __import__("argparse").ArgumentParser()
    start.configure(parser)
    command = start.jupyter(
        parser.parse_args(["--no-browser", "--port", "9999", "--ip", "0.0.0.0"])
    )
    assert {"--no-browser", "--port=9999", "--ip=0.0.0.0"} <= set(command)
    assert any("00_start_here" in part for part in command)
    assert str(ROOT) in start.environment()["PYTHONPATH"]


def test_a_wrong_experiment_lists_the_right_ones(capsys):
    assert main(["run", "gloo-scalling"]) == 2
    told = capsys.readouterr().err
    assert all(name in told for name in lessons.experiments())


def test_out_takes_one_experiment(capsys, tmp_path):
    assert main(["run", "a", "b", "--out", str(tmp_path / "x.json")]) == 2
    assert "name one" in capsys.readouterr().err


def sample_record():
    return Record("sample", "a", {}, [[1.0], [2.0]], Tier.MEASURED, Provenance.here())


def test_run_prints_a_table_and_keeps_records_and_picture(monkeypatch, capsys, tmp_path):
    def draw(found):
        ax = plots.new_axes("Sample")
        plots.bars(ax, ["a"], [found[0].summary.median])
        return ax.figure

    def measure(*, quick, progress):
        progress("half way")
        return [sample_record()]

    module = types.SimpleNamespace(
        TITLE="A sample",
        run=measure,
        table=lambda found: Table(["case", "s"], [["a", found[0].summary.median]]),
    )
    package = "labkit.lessons.gloo_scaling"
    pictures = types.SimpleNamespace(draw=draw)
    monkeypatch.setitem(sys.modules, f"{package}.experiment", module)
    monkeypatch.setitem(sys.modules, f"{package}.pictures", pictures)
    out = tmp_path / "deep" / "x.json"
    assert main(["run", "gloo-scaling", "--quick", "--out", str(out)]) == 0
    told = capsys.readouterr()
    assert "half way" in told.err
    assert "MEASURED" in told.out and "a     2" in told.out
    assert records.load(out)[0].summary.median == 2.0
    assert out.with_suffix(".png").stat().st_size > 1000


def test_tables_line_up():
    lines = str(Table(["name", "µs"], [["a", 1.0], ["longer", 1234.5678]])).splitlines()
    assert lines == ["name      µs", "------  ----", "a          1", "longer  1235"]
    assert str(Table(["x", "y"], [[None, "b"]])).splitlines()[2] == "   b"
