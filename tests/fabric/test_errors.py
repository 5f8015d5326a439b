import errno

import pytest

from labkit.fabric import errors


def explained(step, number, text):
    return errors.explain({"step": step, "errno": number, "error": text}, "")


MISSING = "import pyroute2", None, "No module named 'pyroute2'"
FORBIDDEN = "create namespaces", errno.EPERM, "not permitted"
UNSHAPED = "shape with htb and u32", errno.ENOENT, "No such file"


CAUSES = [
    (MISSING, "pyroute2", "pip install"),
    (FORBIDDEN, "may not create namespaces", "seccomp=unconfined"),
    (UNSHAPED, "could not shape", "modprobe -a sch_htb cls_u32"),
]


@pytest.mark.parametrize(("answer", "cause", "remedy"), CAUSES)
def test_each_cause_has_its_remedy(answer, cause, remedy, monkeypatch):
    monkeypatch.setattr(errors, "_SWITCHES", {})
    error = explained(*answer)
    assert cause in error.cause and remedy in error.remedy and error.cause in str(error)


def test_a_switch_of_the_system_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(errors, "_SYSCTLS", tmp_path)
    switch = tmp_path / "kernel" / "apparmor_restrict_unprivileged_userns"
    switch.parent.mkdir()
    switch.write_text("1\n")
    error = explained(*FORBIDDEN)
    assert "AppArmor" in error.cause
    assert "sudo sysctl kernel.apparmor_restrict_unprivileged_userns=0" in error.remedy
    switch.write_text("0\n")
    assert "may not create namespaces" in explained(*FORBIDDEN).cause


def test_a_holder_that_died_is_quoted():
    assert "Segmentation fault" in str(errors.explain({}, "first\nSegmentation fault\n"))
