"""Each case shows its symptom, its cure reaches par, wrong diagnoses and fixes are refused."""

import time

import pytest
import torch
import torch.distributed as dist

from labkit.__main__ import main
from labkit.course.checking import CheckFailed
from labkit.lessons.casebook import cases, programs
from labkit.lessons.casebook.cases import CASES, Ward, check_fix
from labkit.measure.tables import Table
from tests.fabric.test_fabric import needs_hosts

ON_LINKS = [name for name, case in CASES.items() if case.fabric]
NEEDS_IDLE_CPUS = {"masks"}
"""Its gain is that of a second CPU: nothing to gain where another program has it."""
ON_LOOPBACK = [name for name in CASES if name not in {*ON_LINKS, *NEEDS_IDLE_CPUS}]


def best_gain(name, *, tries=4):
    case, before, after = CASES[name], [], []
    for _ in range(tries):
        sick, well = cases.run(case), cases.run(case, case.cure)
        assert [one["result"] for one in sick] == [one["result"] for one in well]
        before.append(cases.seconds(case, sick))
        after.append(cases.seconds(case, well))
        if min(before) / min(after) >= case.par:
            break
    return min(before) / min(after)


@pytest.mark.timed
@pytest.mark.parametrize("name", ON_LOOPBACK)
def test_the_cure_reaches_par_and_changes_no_result(name):
    assert best_gain(name) >= CASES[name].par


@pytest.mark.timed
@needs_hosts
@pytest.mark.parametrize("name", ON_LINKS)
def test_the_cure_reaches_par_on_links(name):
    assert best_gain(name) >= CASES[name].par


@pytest.mark.timed
def test_connecting_by_rank_is_a_queue_and_by_xor_is_not():
    case = CASES["connections"]
    queue, paired = (cases.scaling(case, (4, 12), fix) for fix in (None, programs.by_xor))
    assert queue[12] / queue[4] > 1.8
    assert paired[12] < queue[12] / 2


@pytest.mark.parametrize("name", CASES)
def test_every_suspect_names_an_instrument_and_one_is_right(name):
    case = CASES[name]
    assert case.culprit in case.suspects and len(case.suspects) >= 3
    assert {suspect.instrument for suspect in case.suspects.values()} <= set(cases.INSTRUMENTS)
    assert all(report.quotation and report.source.address for report in case.report)


def test_a_wrong_diagnosis_is_answered_by_a_measurement(tmp_path, monkeypatch):
    monkeypatch.setenv("LABKIT_LEDGER", str(tmp_path / "ledger.json"))
    ward = Ward("metrics")
    refuted = ward.diagnose("calls")
    assert isinstance(refuted, Table) and "Look here" in refuted.title
    assert len(refuted.rows) == CASES["metrics"].world_size
    assert ward.asked == ["call counts"]
    assert ward.diagnose("objects").startswith("Yes")
    with pytest.raises(ValueError, match="there are"):
        ward.diagnose("gremlins")
    with pytest.raises(ValueError, match="there are"):
        ward.ask("stethoscope")


def test_a_case_is_played_in_a_terminal(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("LABKIT_LEDGER", str(tmp_path / "ledger.json"))
    words = iter(["nonsense", "call counts", "barriers"])
    monkeypatch.setattr("builtins.input", lambda _: next(words))
    assert main(["case", "groups"]) == 0
    told = capsys.readouterr().out
    assert "1047" in told and "no such word" in told and "Yes:" in told and "times faster" in told


def wrong_groups(members):
    made = []
    for ranks in members:
        dist.barrier()
        made.append(dist.new_group(ranks))
        dist.barrier()
    return [g for g, ranks in zip(made, members, strict=True) if dist.get_rank() in ranks]


def first_groups_only(members):
    return programs.local_groups(members)[:1]


def half_precision(metrics):
    values = torch.tensor(list(metrics.values()), dtype=torch.float16)
    dist.all_reduce(values)
    return dict(zip(metrics, (values / dist.get_world_size()).tolist(), strict=True))


def own_values(metrics):
    return dict(metrics)


def gather_less_often(metrics):
    time.sleep(0.05)
    return programs.gather_objects(metrics)


WRONG = {
    ("connections", "the fault is still there"): sorted,
    ("connections", "queue of its own"): lambda peers: sorted(peers, reverse=True),
    ("groups", "still there"): wrong_groups,
    ("groups", "changed the result"): first_groups_only,
    ("metrics", "changed the result"): own_values,
    ("metrics", "changed the result, in rounding"): half_precision,
    ("metrics", "the fault is still"): gather_less_often,
}


@pytest.mark.timed
@pytest.mark.parametrize(("name", "what"), WRONG, ids=lambda value: value)
def test_wrong_fixes_are_refused(name, what, tmp_path, monkeypatch):
    monkeypatch.setenv("LABKIT_LEDGER", str(tmp_path / "ledger.json"))
    words = "changed the result" if "changed" in what else "still there"
    with pytest.raises(CheckFailed, match=words):
        check_fix(name, WRONG[name, what], number="8.9")


@needs_hosts
@pytest.mark.timed
@pytest.mark.parametrize("shares", [lambda rates: [0.5, 0.25, 0.25], lambda rates: [0.4, 0.4, 0.2]])
def test_other_shares_are_refused(shares):
    with pytest.raises(CheckFailed):
        check_fix("streams", shares, number="8.9")


def test_right_fixes_in_other_styles(tmp_path, monkeypatch):
    monkeypatch.setenv("LABKIT_LEDGER", str(tmp_path / "ledger.json"))

    def even_first(peers):
        me = dist.get_rank()
        return sorted(peers, key=lambda peer: min(me, peer) % 2)

    check_fix("connections", even_first, number="8.1")
