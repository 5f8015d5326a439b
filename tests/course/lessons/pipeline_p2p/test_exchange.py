"""Queues and mailboxes on real ranks: values, order, credits, and what blocks what."""

import time
from typing import NamedTuple

import pytest
import torch
import torch.distributed as dist

from course.lessons.pipeline_p2p.exchange import Mailbox, Queues
from labkit import LaunchTimeout, launch


class Note(NamedTuple):
    number: int
    src: int
    dst: int


NOTES = [Note(number, 0, 1) for number in range(6)]
TAGS = {note: note.number for note in NOTES}


def queue(batches):
    return Queues({"all": batches}, like=torch.zeros(1000))


def mailbox(incoming, credits=2):
    mine = incoming if dist.get_rank() == 1 else []
    return Mailbox(mine, tags=TAGS, like=torch.zeros(1000), credits=credits)


def value(note):
    return torch.full((1000,), float(note.number))


def exchange_all(make, put_order, take_order):
    exchange = make()
    if dist.get_rank() == 0:
        for note in put_order:
            exchange.put(note, value(note))
        got = []
    else:
        got = [(note.number, exchange.take(note)[0].item()) for note in take_order]
    exchange.close()
    return got


def test_queues_bring_every_value_also_in_batches_and_put_out_of_order():
    batches = [NOTES[:1], NOTES[1:4], NOTES[4:]]
    got = launch(exchange_all, lambda: queue(batches), NOTES[::-1], NOTES, world_size=2)[1]
    assert got == [(n, float(n)) for n in range(6)]


def test_a_mailbox_brings_every_value_whatever_the_order_of_sending():
    def with_credits():
        return [exchange_all(lambda n=n: mailbox(NOTES, n), NOTES[::-1], NOTES) for n in (1, 2, 6)]

    assert launch(with_credits, world_size=2)[1] == [[(n, float(n)) for n in range(6)]] * 3


def opposite(make):
    """Rank 0 puts note 1 first and note 0 much later; rank 1 wants note 1. Return its wait."""
    first, second = NOTES[:2]
    exchange = make(first, second)
    dist.barrier()
    begin = time.perf_counter()
    if dist.get_rank() == 0:
        exchange.put(second, value(second))
        time.sleep(0.3)
        exchange.put(first, value(first))
    else:
        exchange.take(second)
    waited = time.perf_counter() - begin
    if dist.get_rank() == 1:
        exchange.take(first)
    exchange.close()
    return waited


@pytest.mark.timed
def test_a_late_message_blocks_what_stands_behind_it_in_a_queue_but_not_in_a_mailbox():
    in_queue = launch(opposite, lambda a, b: queue([[a], [b]]), world_size=2)[1]
    in_box = launch(opposite, lambda a, b: mailbox([a, b]), world_size=2)[1]
    assert in_queue >= 0.29
    assert in_box < in_queue / 2


@pytest.mark.timed
def test_a_mailbox_with_one_credit_blocks_too():
    in_box = launch(opposite, lambda a, b: mailbox([b, a], credits=1), world_size=2)[1]
    assert in_box < 0.2  # its one buffer was for what it wanted first


def crossed():
    """Two ranks queue the same two messages in different orders."""
    there, back = Note(0, 0, 1), Note(1, 1, 0)
    order = [there, back] if dist.get_rank() == 0 else [back, there]
    exchange = Queues({"all": [[note] for note in order]}, like=torch.zeros(10))
    mine, theirs = (there, back) if dist.get_rank() == 0 else (back, there)
    exchange.put(mine, torch.zeros(10))
    exchange.take(theirs)


def test_two_orders_in_one_queue_deadlock_and_the_case_file_says_so():
    with pytest.raises(LaunchTimeout) as caught:
        launch(crossed, world_size=2, timeout=1.0)
    assert caught.value.case.running == [0, 1]
    assert "take" in str(caught.value.case)


def test_credits_bound_what_is_sent_ahead():
    def program():
        exchange = mailbox(NOTES, credits=2)
        if dist.get_rank() == 0:
            for note in NOTES:
                exchange.put(note, value(note))
            done = None
        else:
            patience = time.monotonic() + 5
            while len(exchange.times) < 2 and time.monotonic() < patience:
                time.sleep(0.01)
            time.sleep(0.2)  # a third one, sent on credit, would be here by now
            done = sorted(note.number for note in exchange.times)
            for note in NOTES:
                exchange.take(note)
        exchange.close()
        return done

    assert launch(program, world_size=2)[1] == [0, 1]


def test_no_credit_is_refused():
    with pytest.raises(ValueError, match="at least 1 buffer"):
        Mailbox([], tags={}, like=torch.zeros(1), credits=0)


def test_an_error_in_a_queue_reaches_who_waits():
    def program():
        exchange = queue([[Note(0, 0, 1)]])
        if dist.get_rank() == 0:
            exchange.put(Note(0, 0, 1), "no tensor")
            try:
                exchange.close()
            except Exception as error:
                return type(error).__name__
        return None

    assert launch(program, world_size=2)[0] is not None
