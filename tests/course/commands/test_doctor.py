from pytest import mark

from course.__main__ import main
from course.commands import doctor


def test_this_machine_can_run_the_course(capsys):
    assert main(["doctor"]) == 0
    printed = capsys.readouterr().out
    assert "The course can run here." in printed
    assert "started, summed and ended" in printed and "course gpus" in printed


def test_a_missing_essential_is_told_with_its_remedy_and_fails(monkeypatch, capsys):
    torch = (lambda: ("none", "All.", "Install."), "missing")
    monkeypatch.setattr(doctor, "CHECKS", {"memory": (lambda: ("8 GiB",),), "torch": torch})
    assert main(["doctor"]) == 1
    *_, why, remedy, _, last = capsys.readouterr().out.splitlines()
    assert (why.strip(), remedy.strip()) == ("All.", "Install.")
    assert last == "The course cannot run yet. First see to: torch."


@mark.parametrize(("quota", "state"), [(None, "ok"), (0.5, "note")])
def test_a_cpu_quota_below_the_shown_cpus_is_noted(monkeypatch, quota, state):
    monkeypatch.setattr(doctor.machine, "cpu_quota", lambda: quota)
    monkeypatch.setattr(doctor.machine, "usable_cpus", lambda: 4)
    state_here, text, *_ = doctor.examine(*doctor.CHECKS["CPUs"])
    assert state_here == state
    assert quota is None or "0.5 CPUs' worth" in text


def test_a_check_that_breaks_is_a_note_unless_it_is_essential():
    for state in ("note", "missing"):
        state_here, text = doctor.examine([].pop, state)
        assert state_here == state and "pop from empty list" in text
