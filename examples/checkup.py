"""Examine a training loop: who waits for whom, for a CPU or for the wire?

    python examples/checkup.py                           # a stand-in: four ranks, one of them late
    torchrun --nproc-per-node=8 examples/checkup.py      # the same, on the ranks of your job

Your own job: put this file beside your script, change one line of it, and start it as always.

    from checkup import examine
    for batch in examine(loader, model):  # was: for batch in loader:

The loop ends after 25 steps, and rank 0 prints what they show, with the row of FIELD_GUIDE.md. A
loader that ends before is started again. What follows your loop runs as well: let it save nothing.

DDP's calls are seen through a hook; it can have one, so a model that has its own keeps it, and its
calls stay unseen. The hook is Python's, once a bucket: for many tiny buckets it may cost more than
the step itself. So the first steps go without it: how long the job's step is, and how long it
queues for a CPU, is measured in these, where checkup costs two spans a step. Who waits for whom,
and for which calls, is seen through the hook, in the steps after them.

For calls of your own make a `Tracer`, give it as `tracer=`, and write
`with tracer.collective("name", nbytes=x.nbytes): dist.all_reduce(x)`.
"""

import argparse
import os
import socket
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from labkit import Kind, Timeline, Tracer, device, launch, sched, wire
from labkit.measure.calls import Call
from labkit.measure.tables import Table
from labkit.ranks.devices import barrier

WARM_UP = 3  # steps in which ranks connect, allocate, and DDP lays out its buckets anew
PLAIN = 9  # steps without DDP's hook, which tell how long the job's step is
STEPS = 12  # steps seen through the hook; one more counts the bytes on the wire
ALL_STEPS = WARM_UP + PLAIN + STEPS + 1
ROUNDS = 5
MANY = 8  # small sums
MIB = 2**20
SMALL = 4 * MIB  # bytes: calls below it are tried as one
MOST = 256 * MIB  # bytes that the trial may take


@dataclass
class Part:
    """What one rank saw."""

    trace: Any
    hooked: bool
    """DDP's calls were seen through a hook."""
    queued: float | None
    """Seconds that its thread which waited longest for a CPU waited in the steps without the hook;
    None: the kernel tells not."""
    report: wire.Report
    gradients: int
    """Bytes of what is trained; 0 without a model."""
    cpus: frozenset[int]
    latency: float
    """Seconds of one call that moves next to nothing, after others of its kind."""
    apart: list[float]
    """Seconds, by round, of the step's small sums, one call each; empty where they are few."""
    together: list[float]
    """The same bytes in one call."""
    to_neighbours: dict[tuple[int, int], float]
    """By pair of ranks: the least seconds in which they exchanged a MiB."""
    way: str
    """What carried these: "gloo on the CPU"."""
    host: str


def examine(
    loader: Iterable[Any],
    model: torch.nn.Module | None = None,
    *,
    tracer: Tracer | None = None,
    show: Callable[[str], object] = print,
) -> Iterator[Any]:
    """Yield the loader's batches, 25 in all; then show on rank 0 what the steps were spent on."""
    if not dist.is_initialized() or dist.get_world_size() == 1:
        sys.exit("checkup: this job has one rank, which waits for nobody. Start two or more.")
    tracer = tracer or Tracer.aligned()
    batches = endless(loader)
    steps = 0

    def some(count: int) -> Iterator[Any]:
        nonlocal steps
        for _ in range(count):
            tracer.next_step()
            with tracer.span("input", Kind.INPUT):
                batch = next(batches)
            with tracer.span("step", Kind.COMPUTE):
                yield batch
            steps += 1

    try:
        yield from some(WARM_UP)
        with sched.watch() if sched.available() else nullcontext() as usage:
            yield from some(PLAIN)
        hooked = isinstance(model, DistributedDataParallel) and hook(model, tracer, show)
        yield from some(STEPS)
        with wire.meter() as meter:  # it costs more: its step is not timed
            yield from some(1)
    except GeneratorExit:
        who = f"checkup: rank {dist.get_rank()} left its loop in step {steps + 1} of {ALL_STEPS}"
        print(f"{who}: nothing is shown.", file=sys.stderr)
        raise
    parts: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(parts, look(tracer, hooked, usage, meter.report, model))
    if dist.get_rank() == 0:
        show(page(parts))


def hook(model: DistributedDataParallel, tracer: Tracer, show: Callable[[str], object]) -> bool:
    """See DDP's calls from now on; False where the model has a hook of its own."""
    try:
        model.register_comm_hook(None, tracer.ddp_hook)
    except RuntimeError:
        show("checkup: the model has a hook of its own: its calls are in no span.")
        return False
    return True


def endless(loader: Iterable[Any]) -> Iterator[Any]:
    """Yield a loader's batches, again from the start when it has ended."""
    while True:
        count = 0
        for batch in loader:
            count += 1
            yield batch
        if count == 0:
            who = f"checkup: rank {dist.get_rank()}"
            sys.exit(f"{who}: the loader gave nothing more, and checkup needs {ALL_STEPS} batches.")


def look(
    tracer: Tracer, hooked: bool, usage: Any, report: wire.Report, model: torch.nn.Module | None
) -> Part:
    """Try what the steps do not tell, on every rank at once; return what this rank saw."""
    trained = [] if model is None else [x for x in model.parameters() if x.requires_grad]
    here = trained[0].device if trained else device()
    backends = dict(pair.split(":") for pair in str(dist.get_backend_config()).split(","))
    apart, together = few_or_many(report.calls, here)
    affinity = getattr(os, "sched_getaffinity", lambda _: range(os.cpu_count() or 1))
    return Part(
        trace=tracer.trace(),
        hooked=hooked,
        queued=usage and max(thread.waiting for thread in usage.threads),
        report=report,
        gradients=sum(x.nbytes for x in trained),
        cpus=frozenset(affinity(0)),
        latency=latency(here),
        apart=apart,
        together=together,
        to_neighbours=to_neighbours(here),
        way=f"{backends.get(here.type, '?')} on the {'GPU' if here.type == 'cuda' else 'CPU'}",
        host=socket.gethostname(),
    )


def seconds(work: Callable[[], object], here: torch.device) -> float:
    """Time a piece of work that all ranks begin together."""
    barrier()
    start = time.perf_counter()
    work()
    if here.type == "cuda":
        torch.cuda.synchronize(here)
    return time.perf_counter() - start


def latency(here: torch.device, calls: int = 20) -> float:
    """Return the seconds of one call that moves next to nothing, after a warm-up."""
    x = torch.ones(1, device=here)
    for _ in range(3):
        dist.all_reduce(x)
    return seconds(lambda: [dist.all_reduce(x) for _ in range(calls)], here) / calls


def few_or_many(calls: Iterable[Call], here: torch.device) -> tuple[list[float], list[float]]:
    """Time the step's small sums as it makes them, launched one by one, and in one call instead."""
    sizes = [x.nbytes for x in calls if x.kind == "all_reduce" and 0 < x.nbytes < SMALL]
    while sum(sizes) > MOST:
        sizes.pop()
    if len(sizes) < MANY:
        return [], []
    tensors = [torch.ones(nbytes, dtype=torch.uint8, device=here) for nbytes in sizes]
    flat = torch.ones(sum(sizes), dtype=torch.uint8, device=here)

    def many() -> None:
        for work in [dist.all_reduce(x, async_op=True) for x in tensors]:
            work.wait()

    def one() -> None:
        dist.all_reduce(flat)

    apart, together = [], []
    for _ in range(ROUNDS + 1):
        apart.append(seconds(many, here))
        together.append(seconds(one, here))
    return apart[1:], together[1:]  # the first allocates


def to_neighbours(here: torch.device) -> dict[tuple[int, int], float]:
    """Exchange a MiB with the rank on each side, in pairs; return the best of some rounds."""
    rank, world_size = dist.get_rank(), dist.get_world_size()
    ours = torch.ones(MIB, dtype=torch.uint8, device=here)
    theirs = torch.empty_like(ours)
    best = {}
    for first in (0, 1):  # pairs 0-1, 2-3, ..., then 1-2, 3-4, ..., and the last with rank 0
        beside = rank + 1 if (rank - first) % 2 == 0 else rank - 1
        peer = beside % world_size if world_size % 2 == 0 else beside

        def exchange(peer: int = peer) -> None:
            if 0 <= peer < world_size:
                both = [dist.P2POp(dist.isend, ours, peer), dist.P2POp(dist.irecv, theirs, peer)]
                for work in dist.batch_isend_irecv(both):
                    work.wait()

        took = min(seconds(exchange, here) for _ in range(ROUNDS + 1))
        if 0 <= peer < world_size:
            best[min(rank, peer), max(rank, peer)] = took
    return best


@dataclass
class Facts:
    """What all ranks saw, in milliseconds a step; lists are by rank."""

    table: Table
    step: float
    """The slowest rank's, without DDP's hook."""
    seen: float
    """The same in the steps that the table is from: through the hook, where there is one."""
    input: list[float]
    compute: list[float]
    wait: list[float]
    exposed: list[float]
    """Waiting for others, and moving bytes, while the rank did nothing else."""
    hidden: list[float]
    delays: list[float]
    """How long all others waited for this rank alone."""
    late_in: list[int]
    """In how many of the steps they did."""
    queued: list[float]
    calls: list[Call]
    gradients: int
    saved: list[float]
    """By round: what the small sums take, less what one call takes."""
    apart: float
    together: float
    pairs: dict[bool, dict[tuple[int, int], float]]
    """Seconds of an exchange, by pair of ranks: of one host (True), and of two."""
    cpus: list[frozenset[int]]


def facts(parts: list[Part]) -> Facts:
    """Put together what the ranks saw. The longest step is left out: anything can happen once."""
    timeline = Timeline([part.trace for part in parts])
    ranks = range(len(parts))
    first = WARM_UP + PLAIN + 1
    plain = mean_step(without_longest(timeline, range(WARM_UP + 1, first)))
    steps = without_longest(timeline, range(first, first + STEPS))
    seen = mean_step(steps)
    tables = [each.time_by_rank() for each in steps]
    names = tables[0].columns[1:]
    cells = {
        name: [statistics.mean(table.rows[rank][i] for table in tables) for rank in ranks]
        for i, name in enumerate(names, 1)
    }
    delays = [[1e3 * each.straggler_delays()[rank] for each in steps] for rank in ranks]
    queued = [1e3 * (part.queued or 0.0) / PLAIN for part in parts]
    by_rank = [statistics.mean(delay) for delay in delays]
    cells |= {"delayed all by": by_rank, "queued for CPU": queued}
    rows = [[rank, *(round(cells[name][rank], 2) for name in cells)] for rank in ranks]
    through = "through DDP's hook, " if parts[0].hooked else ""
    title = f"ms a step, {through}{len(steps)} of {STEPS} steps (the longest is left out)"
    rounds = list(
        zip(*(zip(part.apart, part.together, strict=True) for part in parts), strict=True)
    )
    slowest = [[1e3 * max(times) for times in zip(*round_, strict=True)] for round_ in rounds]
    pairs: dict[bool, dict[tuple[int, int], float]] = {True: {}, False: {}}
    for part in parts:
        for (a, b), took in part.to_neighbours.items():
            same = pairs[parts[a].host == parts[b].host]
            same[a, b] = max(took, same.get((a, b), 0.0))
    return Facts(
        table=Table(["rank", *cells], rows, title=title),
        step=plain if parts[0].hooked else seen,
        seen=seen,
        input=cells["input ms"],
        compute=cells["compute ms"],
        wait=cells["wait ms"],
        exposed=cells["exposed ms"],
        hidden=cells["hidden ms"],
        delays=by_rank,
        late_in=[sum(delay > 0.1 * seen for delay in delays[rank]) for rank in ranks],
        queued=queued,
        calls=[call for call in parts[0].report.calls if call.nbytes],
        gradients=parts[0].gradients,
        saved=[many - one for many, one in slowest],
        apart=statistics.median(many for many, _ in slowest) if slowest else 0.0,
        together=statistics.median(one for _, one in slowest) if slowest else 0.0,
        pairs=pairs,
        cpus=[part.cpus for part in parts],
    )


def without_longest(timeline: Timeline, numbers: range) -> list[Timeline]:
    """Return these steps, all but the longest."""
    steps = [timeline.steps(number, number) for number in numbers]
    longest = max(steps, key=lambda step: max(lengths(step)))
    return [step for step in steps if step is not longest]


def mean_step(steps: list[Timeline]) -> float:
    """Return the milliseconds of a step on the rank where they are most."""
    by_rank = zip(*(lengths(step) for step in steps), strict=True)
    return 1e3 * max(statistics.mean(own) for own in by_rank)


def lengths(step: Timeline) -> list[float]:
    """Return by rank the seconds from a step's first begin to its last end."""
    spans = [step.of(rank, channel="main") for rank in step.ranks]
    return [max(span.end for span in own) - min(span.begin for span in own) for own in spans]


@dataclass
class Answer:
    """What a question of the field guide's tree comes to."""

    question: str
    row: str | None
    """Where the answer is yes: the row, and what to do there."""


def late(f: Facts) -> Answer:
    """One rank: for it alone the others wait half of what they wait and talk, or more.

    A fifth of the step is enough where it is the same rank in three steps of four. Late for a call
    that was hidden is not late: only that counts which the others wait longer.
    """
    waited = [min(f.wait[:rank] + f.wait[rank + 1 :]) - own for rank, own in enumerate(f.wait)]
    cost = [min(pair) for pair in zip(f.delays, waited, strict=True)]
    worst = max(range(len(cost)), key=cost.__getitem__)
    question = (
        f"One rank late? Rank {worst} makes all wait {max(cost[worst], 0):.1f} ms a step; ranks "
        f"wait and talk up to {max(f.exposed):.1f} of {f.seen:.1f} ms"
    )
    half_of_the_talk = cost[worst] >= max(0.5 * max(f.exposed), 0.1 * f.seen)
    always = cost[worst] >= 0.2 * f.seen and f.late_in[worst] >= 0.75 * (STEPS - 1)
    if f.late_in[worst] < 2 or not (half_of_the_talk or always):
        return Answer(question, None)
    if f.queued[worst] - statistics.median(f.queued) >= 0.5 * cost[worst]:
        return Answer(question, f"3: rank {worst} is late since it queues for a CPU. {cpus(f)}")
    more = {
        "its input": f.input[worst] - statistics.median(f.input),
        "its own work, before or after its calls": f.compute[worst] - statistics.median(f.compute),
    }
    part = max(more, key=more.__getitem__)
    return Answer(
        question,
        f"2: rank {worst} is late in {f.late_in[worst]} of {STEPS - 1} steps, through {part} "
        f"({more[part]:.1f} ms more than the median rank). The collective is innocent.",
    )


def calls(f: Facts) -> Answer:
    """One call with the bytes of many would save half of what ranks wait and talk, or more.

    What the hook adds to a step is no talk of the job's own.
    """
    small = [call for call in f.calls if call.kind == "all_reduce" and call.nbytes < SMALL]
    if len(small) < MANY:
        return Answer(f"Too many calls? A step has {len(small)} small sums", None)
    question = (
        f"Too many calls? The step's {len(small)} small sums take {f.apart:.1f} ms, their "
        f"{sum(x.nbytes for x in small) / 1e6:.1f} MB in one call {f.together:.1f}"
    )
    saved = statistics.median(f.saved)
    talk = statistics.median(f.exposed) - max(f.seen - f.step, 0.0)
    counts = min(f.saved) > 0 and f.apart >= 2 * f.together
    if not (counts and saved >= 0.5 * talk and saved >= 0.1 * f.step):
        return Answer(question, None)
    return Answer(question, "4: fuse them; DDP: a larger bucket_cap_mb.")


def queue(f: Facts) -> Answer:
    """A fifth of the step, or more, passes in a queue for a CPU."""
    queued = statistics.median(f.queued)
    question = f"A queue for CPUs? Ranks stand in it {queued:.1f} of {f.step:.1f} ms"
    if queued < 0.2 * f.step:
        return Answer(question, None)
    return Answer(question, f"3: {cpus(f)}")


def cpus(f: Facts) -> str:
    """Say how many CPUs there are for how many ranks."""
    together = len(frozenset().union(*f.cpus))
    return (
        f"{len(f.cpus)} ranks may use {together} CPUs ({len(f.cpus[0])} each). Who has them: "
        "python examples/who_has_my_cpus.py -- COMMAND..."
    )


def nothing(f: Facts) -> Answer:
    """Ranks wait and talk for less than a tenth of the step."""
    talk = max(f.exposed)
    question = f"Does it compute? Ranks wait and talk {talk:.1f} of {f.seen:.1f} ms"
    if talk >= 0.1 * f.seen:
        return Answer(question, None)
    fetch = statistics.median(f.input)
    what = "fetching input" if fetch > 0.5 * f.seen else "computing"
    return Answer(question, f"none: no network will help this job. Profile the {what}.")


def jitter(f: Facts) -> Answer:
    """Half of what they talk is waiting for a last rank, which is another one each time."""
    wait = max(f.wait)
    question = f"Another rank each time? Ranks wait {wait:.1f} ms of the {max(f.exposed):.1f}"
    if wait < 0.5 * max(f.exposed):
        return Answer(question, None)
    return Answer(question, "2: garbage collection, checkpoints, logging, unequal batches.")


def volume(f: Facts) -> Answer:
    """Calls carry half as much again as the gradients, or more."""
    carried = sum(call.nbytes for call in f.calls)
    question = f"More bytes than needed? Calls carry {carried / 1e6:.1f} MB a step"
    if not f.gradients:
        return Answer(f"{question} (no model was given to compare)", None)
    question += f", gradients have {f.gradients / 1e6:.1f}"
    if carried < 1.5 * f.gradients:
        return Answer(question, None)
    return Answer(question, "5: sum once a batch (no_sync), and what is needed only.")


def link(f: Facts) -> Answer:
    """A pair of neighbours takes twice as long as the median pair of its kind, or longer."""
    question = "A slow link? "
    for inside, pairs in f.pairs.items():
        if not pairs:
            continue
        times = {pair: 1e3 * took for pair, took in pairs.items()}
        slow = max(times, key=times.__getitem__)
        usual, where = statistics.median_low(times.values()), "inside" if inside else "between"
        question += (
            f"{'' if question.endswith('? ') else '; '}1 MiB {where} hosts: median {usual:.2f} ms, "
            f"slowest {times[slow]:.2f} (ranks {slow[0]} and {slow[1]})"
        )
        if times[slow] >= 2 * usual:
            culprits = [pair for pair in times if times[pair] >= 2 * usual]
            both = set(culprits[0]).intersection(*culprits)
            who = f"rank {min(both)}'s link" if len(both) == 1 else f"the links of {culprits}"
            return Answer(question, f"6: {who}: look at its interface, card, cable, counters.")
    return Answer(question, None)


def overlap(f: Facts) -> Answer:
    """Next to nothing of it is hidden, although the ranks compute for long enough."""
    hidden, talk = statistics.median(f.hidden), statistics.median(f.exposed)
    compute = statistics.median(f.compute)
    question = (
        f"Could it be hidden? {hidden:.1f} ms are, {talk:.1f} are not; ranks compute {compute:.1f}"
    )
    if hidden > 0.25 * (hidden + talk) or compute < 0.5 * talk:
        return Answer(question, None)
    return Answer(question, "7: start it earlier: several buckets, the first while others compute.")


TREE = (late, calls, queue, nothing, jitter, volume, link, overlap)
"""The guide's questions, in the order in which an answer settles the next ones."""


def page(parts: list[Part]) -> str:
    """Lay out the findings: figures by rank, what was tried, questions down to the first yes."""
    f = facts(parts)
    lines = [str(f.table), ""]
    lines.append(f"a step of the job: {f.step:.1f} ms")
    if parts[0].hooked:
        lines[-1] += f", without DDP's hook; {f.seen:.1f} through it, as the table has it"
    lines.append(f"calls a step: {len(f.calls)}, of {sum(x.nbytes for x in f.calls) / 1e6:.2f} MB")
    small = 1e6 * max(part.latency for part in parts)
    lines.append(f"one small call after the other: {small:.0f} µs, by {parts[0].way}")
    metered = Timeline([part.trace for part in parts]).steps(ALL_STEPS).spans
    for report in (part.report for part in parts):
        spans = [s for s in metered if s.rank == report.rank and s.kind is Kind.COLLECTIVE]
        untold = sum(c.nbytes for c in report.calls) - sum(s.nbytes or 0 for s in spans)
        if untold > 0:
            lines.append(
                f"rank {report.rank}: no span covers {untold / 1e6:.2f} MB of calls: whoever is "
                "waited for there is not in the table"
            )
    try:
        sent = wire.matrix([part.report for part in parts]).sum(axis=1) / 1e6
        lines.append("MB sent a step, by rank: " + " ".join(f"{x:.2f}" for x in sent))
    except (wire.WireUnavailable, wire.WireMismatch) as reason:
        lines.append(f"bytes on the wire: {reason}")
    lines.append("")
    for rule in TREE:
        answer = rule(f)
        lines.append(f"{answer.question}: {'yes' if answer.row else 'no'}.")
        if answer.row:
            return "\n".join([*lines, f"ROW {answer.row}"])
    rest = "what is left are rows 5 to 7 by hand: is this what your slowest link carries?"
    return "\n".join([*lines, f"ROW undecided: {rest}"])


def stand_in() -> str:
    """Train a model of twenty layers with DDP; the input of rank 1 is slow."""
    here = device()
    layers = [torch.nn.Linear(224, 224) for _ in range(20)]
    model = DistributedDataParallel(torch.nn.Sequential(*layers).to(here), bucket_cap_mb=1)
    shown: list[str] = []
    for batch in examine(slow_on_one_rank(here), model, show=shown.append):
        model(batch).sum().backward()
    return "\n".join(shown)


def slow_on_one_rank(here: torch.device) -> Iterator[torch.Tensor]:
    """Yield batches, 60 ms each on rank 1 and 2 ms elsewhere: more than CPUs that are slow hide."""
    while True:
        time.sleep(0.06 if dist.get_rank() == 1 else 0.002)
        yield torch.ones(8, 224, device=here)


if __name__ == "__main__":
    plain = argparse.RawDescriptionHelpFormatter
    argparse.ArgumentParser(description=__doc__, formatter_class=plain).parse_args()
    shown, *_ = launch(stand_in)
    if os.environ.get("RANK", "0") == "0":
        print(shown)
