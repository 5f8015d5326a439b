import errno
import pickle

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
        ({"step": "delay with netem", "errno": 2, "error": "No such file"}, "netem", "sch_netem"),
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
    switch = tmp_path / "apparmor_restrict_unprivileged_userns"
    switch.write_text("1\n")
    monkeypatch.setattr(errors, "_SWITCHES", {str(switch): ("1", "AppArmor forbids it", "Ask.")})
    answer = {"step": "create namespaces", "errno": errno.EPERM, "error": "not permitted"}
    assert errors.explain(answer, "").cause == "AppArmor forbids it"
    switch.write_text("0\n")
    assert "may not create namespaces" in errors.explain(answer, "").cause


def test_a_holder_that_died_is_quoted():
    assert "Segmentation fault" in str(errors.explain({}, "first\nSegmentation fault\n"))


def test_it_survives_the_way_between_processes():
    error = pickle.loads(pickle.dumps(errors.FabricUnavailable("why", "what to do")))
    assert (error.cause, error.remedy) == ("why", "what to do")
