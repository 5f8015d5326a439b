"""Lesson 6's exercises: right answers in several styles pass, usual mistakes are told by name."""

import re
from functools import partial

import pytest
import torch
import torch.distributed as dist

from course import checking, notebooks
from course.catalogue import ROOT
from course.checking import CheckFailed
from course.comm import algorithms
from course.lessons.equivalent_collectives import checks
from tests.course.lessons.equivalent_collectives import answers


@pytest.fixture(autouse=True)
def give_up_soon(monkeypatch):
    """Some answers hang, and need not do so for long; a loaded machine is slow, too."""
    monkeypatch.setattr(checking, "on_ranks", partial(checking.on_ranks, timeout=15))


def refused(check, answer):
    """Return what the check says to a wrong answer: what was got, and what that usually means."""
    with pytest.raises(CheckFailed) as caught:
        check(answer)
    return f"{caught.value.got} | {caught.value.meaning}"


@pytest.mark.parametrize(
    "answer",
    [
        partial(answers.ring, swap=answers.batched),
        partial(answers.ring, swap=answers.by_name),
        partial(answers.ring, swap=answers.parity),
        answers.ring_rolled,
    ],
    ids=["batched", "by name", "blocking", "rolled"],
)
def test_right_rings_pass(answer, capsys):
    checks.check_ring_all_reduce(answer)
    assert "1.5 S and 6 messages on 4 ranks" in capsys.readouterr().out


RINGS = {
    "whole tensors": (answers.whole_tensor_ring, "whole tensors go around"),
    "blocking sends in a circle": (answers.blocking_circle, "both send first"),
    "odd sizes": (partial(answers.ring, cut=answers.equal_chunks), "chunks differ in"),
    "aliasing": (partial(answers.ring, add=False), "the receive buffer is the tensor"),
    "half a ring": (partial(answers.ring, turns=1), "a turn of the ring is missing"),
    "too much memory": (
        partial(answers.ring, scratch=lambda flat, chunks: torch.empty_like(flat)),
        "copies of the tensor",
    ),
    "float32 scratch": (
        partial(answers.ring, scratch=lambda flat, chunks: torch.empty(len(chunks[0]))),
        "a buffer with another dtype",
    ),
    "in two halves": (answers.in_two_halves, "more messages than rounds"),
    "falls back": (answers.even_or_the_library, "build it from sends and receives"),
    "labkit's own": (answers.labkits_own, "labkit's ring_all_reduce"),
    "dropped handles": (partial(answers.ring, swap=answers.dropped_handles), "was dropped"),
    "send waited late": (answers.send_waited_late, "before you write into its buffer"),
    "reads too early": (answers.reads_too_early, "has not arrived yet is used"),
    "copies through numpy": (answers.through_numpy, "copies of the tensor"),
    "flat only": (answers.flat_only, "any number of dimensions"),
    "not alone": (answers.not_alone, "one rank is alone"),
    "twice": (answers.one_share_too_many, "rank 2's share is in the sum twice"),
    "does nothing": (lambda tensor: None, "no send and no receive"),
}


@pytest.mark.parametrize("wrong, meaning", RINGS.values(), ids=RINGS)
def test_ring(wrong, meaning):
    assert meaning in refused(checks.check_ring_all_reduce, wrong)


@pytest.mark.parametrize("answer", [answers.chain, answers.prefetching, answers.one_ahead])
def test_right_chains_pass(answer, capsys):
    checks.check_pipelined_broadcast(answer)
    assert "10 rounds for 8 chunks on 4 ranks" in capsys.readouterr().out


@pytest.mark.parametrize(
    "wrong, meaning",
    [
        (answers.root_serves_all, "a root that serves several"),
        (answers.store_and_forward, "it collects all pieces first"),
        (answers.waits_for_each_send, "or waits for a send"),
        (answers.whole, "not cut into `chunks` pieces"),
        (answers.always_eight, "take their number from the argument"),
        (answers.always_from_zero, "the chain starts at src"),
        (answers.backwards, "cut or order differently"),
        (answers.into_a_copy, "copies of the tensor"),
        (answers.passes_on_too_early, "wait for the receive first"),
        (answers.with_a_barrier, "build it from sends and receives"),
        (answers.drops_its_sends, "was dropped"),
        (answers.forgets_the_rest, "the end is missing"),
        (answers.labkits_broadcast, "labkit's pipelined_broadcast"),
        (
            lambda tensor, src, chunks: dist.broadcast(tensor, src),
            "build it from sends and receives",
        ),
    ],
)
def test_pipelined_broadcast(wrong, meaning):
    assert meaning in refused(checks.check_pipelined_broadcast, wrong)


@pytest.mark.parametrize(
    "answer",
    [
        partial(answers.doubling, swap=answers.batched),
        partial(answers.doubling, swap=answers.by_name, fold="last"),
        answers.doubling_out_of_place,
    ],
    ids=["batched", "by name, last onto first", "out of place"],
)
def test_right_doublings_pass(answer, capsys):
    checks.check_recursive_doubling(answer)
    assert "2 rounds on 4 ranks, 4 on 6" in capsys.readouterr().out


DOUBLINGS = {
    "skips partners": (partial(answers.powers_of_two_only, skip=True), "are missing"),
    "powers of two only": (answers.powers_of_two_only, "no power of two"),
    "a ring": (answers.flat_ring, "a ring or a tree in disguise"),
    "in turns": (partial(answers.doubling, swap=answers.two_exchanges), "two exchanges where"),
    "race": (answers.send_waited_at_the_end, "before you write into its buffer"),
    "race through numpy": (answers.numpy_race, "still being sent"),
    "waits twice": (partial(answers.doubling, swap=answers.waits_twice), "gloo's second wait()"),
    "library for odd n": (answers.library_for_odd_ones, "build it from sends and receives"),
    "five and seven fail": (answers.up_to_four, "no power of two"),
    "first row only": (answers.first_row_only, "any number of dimensions"),
    "overwrites": (answers.overwrites, "overwrites this rank's own"),
    "a round's sum forgotten": (answers.rank_1_forgets, "are missing"),
    "four copies": (answers.with_many_copies, "copies of the tensor"),
    "float32 scratch": (
        partial(answers.doubling, room=lambda t: torch.empty(t.shape)),
        "a buffer with another dtype",
    ),
    "dropped handles": (partial(answers.doubling, swap=answers.dropped_handles), "was dropped"),
    "labkit's": (algorithms.recursive_doubling_all_reduce, "labkit's recursive_doubling"),
}


@pytest.mark.parametrize("wrong, meaning", DOUBLINGS.values(), ids=DOUBLINGS)
def test_recursive_doubling(wrong, meaning):
    assert meaning in refused(checks.check_recursive_doubling, wrong)


@pytest.mark.parametrize(
    "answer", [answers.auditor, answers.auditor_by_time, answers.auditor_matching]
)
def test_right_auditors_pass(answer, capsys):
    checks.check_audit(answer)
    assert "verdicts; par is every verdict right" in capsys.readouterr().out


@pytest.mark.parametrize(
    "wrong, meaning",
    [
        (partial(answers.auditor, two=1), "two turns of the ring"),
        (partial(answers.auditor, one=lambda n: 1), "the factor is missing"),
        (partial(answers.auditor, reduce=lambda n: (n - 1) / n), "1 for broadcast and reduce"),
        (partial(answers.auditor, switch=None), "(n+1)/n S per link instead of"),
        (partial(answers.auditor, switch=lambda n: 1), "not S alone"),
        (partial(answers.auditor, strict=True), "equal will do"),
        (partial(answers.auditor, scale=8), "bits per second"),
        (partial(answers.auditor, unit=1e-9), "GB/s: the statement"),
        (lambda *claim: answers.auditor(*claim)[1], "another type was returned"),
        (lambda *claim: None, "without `return`"),
        (lambda *claim: (*answers.auditor(*claim), "sure"), "a tuple of 3"),
        (
            lambda c, s, n, t, link: (s / t, answers.auditor(c, s, n, t, link)[1]),
            "the factor is missing",
        ),
    ],
)
def test_audit(wrong, meaning):
    assert meaning in refused(checks.check_audit, wrong)


def test_statements_and_checks_name_the_same_pars():
    solutions = notebooks.read(ROOT / "solutions" / "06_equivalent_collectives.ipynb")
    text = "\n".join(cell.source for cell in solutions.cells if cell.cell_type == "markdown")
    stated = re.findall(r"## Exercise (6\.\d).*?\*\*Par:\*\* (.*?) · ", text, flags=re.S)
    assert dict(stated) == checks.PARS
