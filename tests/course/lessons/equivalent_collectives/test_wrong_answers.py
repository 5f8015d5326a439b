"""Lesson 6's exercises: right answers in several styles pass, usual mistakes are told by name."""

import re
from functools import partial

import pytest
import torch
import torch.distributed as dist

from course import notebooks
from course.catalogue import ROOT
from course.checking import CheckFailed
from course.lessons.equivalent_collectives import checks
from tests.course.lessons.equivalent_collectives import answers


def refused(check, answer):
    """Return what the check says to a wrong answer: what was got, and what that usually means."""
    with pytest.raises(CheckFailed) as caught:
        check(answer)
    return f"{caught.value.got} | {caught.value.meaning}"


@pytest.mark.parametrize(
    "answer",
    [
        partial(answers.ring, swap=answers.batched),
        partial(answers.ring, swap=answers.parity),
    ],
    ids=["batched", "blocking"],
)
def test_right_rings_pass(answer, capsys):
    checks.check_ring_all_reduce(answer)
    assert "1.5 S and 6 messages on 4 ranks" in capsys.readouterr().out


RINGS = {
    "not flattened": (answers.unflattened_ring, "a flat view"),
    "by exchange": (answers.by_exchange, "sends to several others"),
    "in float32": (lambda t: answers.in_float32(t, answers.ring), "went through float32"),
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
    "send waited late": (answers.send_waited_late, "before you write into its buffer"),
    "reads too early": (answers.reads_too_early, "has not arrived yet is used"),
    "twice": (answers.one_share_too_many, "rank 2's share is in the sum twice"),
    "does nothing": (lambda tensor: None, "no send and no receive"),
}


@pytest.mark.parametrize("wrong, meaning", RINGS.values(), ids=RINGS)
def test_ring(wrong, meaning):
    assert meaning in refused(checks.check_ring_all_reduce, wrong)


def test_a_right_chain_passes(capsys):
    checks.check_pipelined_broadcast(answers.prefetching)
    assert "10 rounds for 8 chunks on 4 ranks" in capsys.readouterr().out


@pytest.mark.parametrize(
    "wrong, meaning",
    [
        (answers.root_serves_all, "a root that serves several"),
        (partial(answers.chain, flat=lambda tensor: tensor), "a flat view"),
        (answers.store_and_forward, "it collects all pieces first"),
        (partial(answers.chain, send=dist.send), "or waits for a send"),
        (partial(answers.chain, pieces=1), "not cut into `chunks` pieces"),
        (partial(answers.chain, pieces=8), "take their number from the argument"),
        (partial(answers.chain, first=0), "the chain starts at src"),
        (partial(answers.chain, order=-1), "cut or order differently"),
        (answers.into_a_copy, "copies of the tensor"),
        (answers.passes_on_too_early, "wait for the receive first"),
        (answers.forgets_the_rest, "the end is missing"),
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
        partial(answers.doubling, swap=answers.by_name),
        partial(answers.doubling, add=lambda tensor, other: tensor.copy_(tensor + other)),
    ],
    ids=["by name", "out of place"],
)
def test_right_doublings_pass(answer, capsys):
    checks.check_recursive_doubling(answer)
    assert "2 rounds on 4 ranks, 4 on 6" in capsys.readouterr().out


DOUBLINGS = {
    "out of place": (answers.out_of_place, "tensor += x adds"),
    "skips partners": (partial(answers.powers_of_two_only, skip=True), "are missing"),
    "powers of two only": (answers.powers_of_two_only, "no power of two"),
    "a ring": (answers.ring, "a ring or a tree in disguise"),
    "in turns": (partial(answers.doubling, swap=answers.two_exchanges), "two exchanges where"),
    "race through numpy": (answers.numpy_race, "still being sent"),
    "overwrites": (answers.overwrites, "overwrites this rank's own"),
}


@pytest.mark.parametrize("wrong, meaning", DOUBLINGS.values(), ids=DOUBLINGS)
def test_recursive_doubling(wrong, meaning):
    assert meaning in refused(checks.check_recursive_doubling, wrong)


RIGHT = {
    "audit": {key: checks._verdict(*claim) for key, claim in checks.CLAIMS.items()},
    "traces": {letter: name for letter, (name, _) in checks.TRACES.items()},
}
SHORT = {"audit": checks.check_audit, "traces": checks.check_traces}


@pytest.mark.parametrize("form", RIGHT)
def test_right_short_answers_pass(form, capsys):
    SHORT[form](RIGHT[form])
    assert "passed" in capsys.readouterr().out
    assert set(RIGHT["audit"].values()) == set(checks.VERDICTS)


@pytest.mark.parametrize(
    "form, letter, given, meaning",
    [
        ("audit", "a", "impossible", "busbw is 367"),
        ("audit", "b", "possible", "busbw is 480"),
        ("audit", "d", "needs a switch that adds", "only an all_reduce"),
        ("audit", "e", "needs a switch that adds", "only an all_reduce whose busbw"),
        ("audit", "f", "impossible", "busbw is 1 GB/s, the link 1"),
        ("audit", "a", ..., "no such name"),
        ("traces", "A", "recursive doubling", "log2(n) partners"),
        ("traces", "D", "pipelined broadcast", "sends S, once"),
        ("traces", "B", None, "no such name"),
    ],
)
def test_wrong_short_answers(form, letter, given, meaning):
    answer = RIGHT[form] | {letter: given}
    assert meaning in refused(SHORT[form], answer)


def test_statements_and_checks_name_the_same_pars():
    solutions = notebooks.read(ROOT / "solutions" / "06_equivalent_collectives.ipynb")
    text = "\n".join(cell.source for cell in solutions.cells if cell.cell_type == "markdown")
    stated = re.findall(r"## Exercise (6\.\d).*?\*\*Par:\*\* (.*?) · ", text, flags=re.S)
    assert dict(stated) == checks.PARS
