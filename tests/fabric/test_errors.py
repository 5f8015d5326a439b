import errno

import pytest

from labkit.fabric import errors


@pytest.mark.parametrize(
    ("answer", "cause", "remedy"),
    [
        (
            {"step": "import pyroute2", "errno": None, "error": "No module named 'pyroute2'"},
            "pyroute2",
            "pip install",
        ),
        (
            {"step": "create namespaces", "errno": errno.EPERM, "error": "not permitted"},
            "may not create namespaces",
            "seccomp=unconfined",
        ),
        (
            {"step": "shape with htb and u32", "errno": errno.ENOENT, "error": "No such file"},
            "could not shape",
            "modprobe -a sch_htb cls_u32",
        ),
        ({"step": "configure a host", "errno": 22, "error": "Invalid"}, "configure", "Report"),
    ],
)
def test_each_cause_has_its_remedy(answer, cause, remedy, monkeypatch):
    monkeypatch.setattr(errors, "_SWITCHES", {})
    error = errors.explain(answer, "")
    assert cause in error.cause
    assert remedy in error.remedy
    assert error.cause in str(error)


def test_a_switch_of_the_system_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(errors, "_SYSCTLS", tmp_path)
    switch = tmp_path / "kernel" / "apparmor_restrict_unprivileged_userns"
    switch.parent.mkdir()
    switch.write_text("1\n")
    answer = {"step": "create namespaces", "errno": errno.EPERM, "error": "not permitted"}
    error = errors.explain(answer, "")
    assert "AppArmor" in error.cause
    assert "sudo sysctl kernel.apparmor_restrict_unprivileged_userns=0" in error.remedy
    switch.write_text("0\n")
    assert "may not create namespaces" in errors.explain(answer, "").cause


def test_a_holder_that_died_is_quoted():
    assert "Segmentation fault" in str(errors.explain({}, "first\nSegmentation fault\n"))
