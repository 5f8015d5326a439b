"""The cases: what was reported, the program that shows it here, and the suspects."""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from labkit.course import checking, ledger
from labkit.course.checking import CheckFailed
from labkit.fabric.fabric import Fabric
from labkit.launch.launcher import launch
from labkit.lessons.casebook import programs, published
from labkit.measure import wire
from labkit.measure.published import Published
from labkit.measure.tables import Table

INSTRUMENTS = ("per-rank timers", "scheduler", "wire meter", "call counts", "environment")


@dataclass(frozen=True, slots=True)
class Suspect:
    """A plausible cause, and the measurement that speaks for or against it."""

    says: str
    instrument: str
    """The instrument that decides it."""
    because: str
    """What to look at in what that instrument shows."""


@dataclass(frozen=True, slots=True)
class Case:
    """One slow job."""

    name: str
    title: str
    report: tuple[Published, ...]
    program: Callable
    fault: Callable
    """What the program does wrong: the function that a fix replaces."""
    cure: Callable
    suspects: Mapping[str, Suspect]
    culprit: str
    """The key of the right suspect."""
    par: float
    """How many times faster a fix must make `phase`."""
    phase: str
    """The phase that is slow; its slowest rank's time counts."""
    production: str
    """How one would see it on a cluster."""
    not_when: str
    """When it is something else."""
    world_size: int = 8
    fabric: Callable[[], Fabric] | None = None
    variables: Mapping[str, str] = field(default_factory=dict)
    """Environment of the ranks."""


def run(case: Case, fix: Callable | None = None, *, instrument: str = "", ranks: int = 0) -> list:
    """Run a case's program, with its fault or with a fix; return what every rank saw."""
    fix = fix or case.fault
    ranks = ranks or case.world_size
    args = (programs.observed, case.program, fix, instrument)
    before = {name: os.environ.get(name) for name in case.variables}
    os.environ.update(case.variables)
    try:
        if case.fabric is None:
            return launch(*args, world_size=ranks, timeout=60)
        with case.fabric() as fabric:
            return launch(*args, world_size=ranks, fabric=fabric, timeout=60)
    finally:
        for name, value in before.items():
            os.environ.pop(name, None) if value is None else os.environ.update({name: value})


def seconds(case: Case, seen: list) -> float:
    """Return the time of the case's slow phase: the slowest rank's, all its spans together."""
    return max(sum(e - s for name, s, e in one["spans"] if name == case.phase) for one in seen)


class Ward:
    """A case that is being examined: counts the instruments asked, keeps the diagnosis.

    Args:
        case: The case, or its name.
    """

    def __init__(self, case: Case | str) -> None:
        self.case = CASES[case] if isinstance(case, str) else case
        self.asked: list[str] = []

    def ask(self, instrument: str) -> Table:
        """Run the sick program under an instrument, and show what it saw.

        Raises:
            ValueError: There is no such instrument; the message lists those there are.
        """
        if instrument not in INSTRUMENTS:
            raise ValueError(f"no instrument {instrument!r}; there are: {', '.join(INSTRUMENTS)}.")
        self.asked.append(instrument)
        ledger.keep(f"case.{self.case.name}", {"asked": len(self.asked)})
        return _shown(instrument, run(self.case, instrument=instrument))

    def diagnose(self, suspect: str) -> Table | str:
        """Commit a diagnosis: a wrong one is answered by the measurement that refutes it."""
        suspects = self.case.suspects
        if suspect not in suspects:
            raise ValueError(f"no suspect {suspect!r}; there are: {', '.join(suspects)}.")
        if suspect == self.case.culprit:
            count = len(self.asked)
            ledger.keep(f"case.{self.case.name}", {"asked": count, "diagnosed": True})
            return f"Yes: {suspects[suspect].says} You asked {count} instruments; par is 2 or 3."
        evidence = suspects[suspect]
        table = self.ask(evidence.instrument)
        heading = f"Not: {evidence.says} Look here: {evidence.because}"
        return Table(table.columns, table.rows, heading)

    def treat(self, fix: Callable) -> Table:
        """Measure a fix against the fault: the slow phase, and whether results stayed the same."""
        sick, well = run(self.case), run(self.case, fix)
        same = [one["result"] for one in sick] == [one["result"] for one in well]
        before, after = seconds(self.case, sick), seconds(self.case, well)
        return Table(
            ["", f"{self.case.phase}, slowest rank (ms)", "times faster", "results"],
            [
                ["with the fault", round(1e3 * before, 1), 1.0, ""],
                ["yours", round(1e3 * after, 1), round(before / after, 2),
                 "the same" if same else "DIFFERENT"],
                ["par", None, self.case.par, "the same"],
            ],
        )  # fmt: skip


def check_fix(name: str, fix: Callable, *, number: str) -> None:
    """Judge a fix: at least the case's par, in the best of three, and unchanged results.

    Raises:
        CheckFailed: It is not faster by par, or changes what the program computes.
    """
    case = CASES[name]
    with checking.exercise(number, par=f"{case.par:g} times faster, the same results") as verdict:
        before, after = [], []
        for _ in range(3):
            sick, well = run(case), run(case, fix)
            for rank, (was, now) in enumerate(zip(sick, well, strict=True)):
                if was["result"] != now["result"]:
                    raise CheckFailed(
                        f"rank {rank} still computes {str(was['result'])[:80]}",
                        str(now["result"])[:80],
                        "the fix changed the result, not only the time",
                    )
            before.append(seconds(case, sick))
            after.append(seconds(case, well))
        best = min(before) / min(after)  # other programs can only add time
        if best < case.par:
            raise CheckFailed(
                f"{case.phase} at least {case.par:g} times faster than with the fault",
                f"{best:.2f} times",
                f"the fault is still there: {case.suspects[case.culprit].says}",
            )
        verdict.reached = f"{best:.1f} times"


def _shown(instrument: str, seen: list) -> Table:
    if instrument == "per-rank timers":
        phases = list(dict.fromkeys(name for one in seen for name, *_ in one["spans"]))
        start = min(one["spans"][0][1] for one in seen)
        rows = []
        for one in seen:
            row = [one["rank"]]
            for phase in phases:
                spans = [(s, e) for name, s, e in one["spans"] if name == phase]
                begins, lasts = min(s for s, _ in spans) - start, sum(e - s for s, e in spans)
                row += [round(1e3 * begins, 1), round(1e3 * lasts, 1)]
            rows.append(row)
        columns = ["rank", *(c for p in phases for c in (f"{p}: begins (ms)", f"{p} (ms)"))]
        return Table(columns, rows)
    if instrument == "scheduler":
        return Table(
            ["rank", "CPUs", "wall (ms)", "on a CPU", "waiting for one", "lost the CPU"],
            [[one["rank"], len(one["cpus"]), *(round(1e3 * t, 1) for t in one["usage"][:3]),
              one["usage"][3]] for one in seen],
        )  # fmt: skip
    if instrument == "wire meter":
        matrix = wire.matrix([one["report"] for one in seen])
        rows = [[i, *(int(v) for v in row)] for i, row in enumerate(matrix)]
        return Table(["bytes from, to", *map(str, range(len(rows)))], rows)
    if instrument == "call counts":
        kinds = list(dict.fromkeys(kind for one in seen for kind, _ in one["calls"]))
        rows = [[one["rank"], *([k for k, _ in one["calls"]].count(kind) for kind in kinds)]
                for one in seen]  # fmt: skip
        return Table(["rank", *kinds], rows)
    cpus = [",".join(map(str, one["cpus"])) for one in seen]
    return Table(
        ["rank", "CPUs it may use"], [[one["rank"], c] for one, c in zip(seen, cpus, strict=True)]
    )


def scaling(case: Case, sizes: tuple[int, ...], fix: Callable | None = None) -> dict[int, float]:
    """Return the slow phase's seconds for several world sizes: the median of three runs."""
    return {
        n: statistics.median(seconds(case, run(case, fix, ranks=n)) for _ in range(3))
        for n in sizes
    }


CASES: dict[str, Case] = {
    case.name: case
    for case in (
        Case(
            name="connections",
            title="The first all_reduce takes twelve minutes",
            report=(published.CONNECT,),
            program=programs.connections,
            fault=programs.by_rank,
            cure=programs.by_xor,
            phase="connect",
            world_size=12,
            par=2.0,
            culprit="order",
            suspects={
                "order": Suspect(
                    "each rank waits for the one before it, because peers are taken by rank.",
                    "per-rank timers",
                    "when does each rank finish connecting? It grows with the rank",
                ),
                "network": Suspect(
                    "the network is slow.", "wire meter", "a few bytes per pair: nothing to move"
                ),
                "cpu": Suspect(
                    "the CPUs are used up.",
                    "scheduler",
                    "ranks neither run nor wait for a CPU: they are blocked",
                ),
            },
            production="py-spy on two ranks, far apart: both in the connect call, for other peers",
            not_when="the time does not grow with the world size: then it is a single slow peer",
        ),
        Case(
            name="groups",
            title="A thousand seconds to make groups",
            report=(published.GROUPS, published.LOCAL_GROUPS),
            program=programs.groups,
            fault=programs.barrier_each,
            cure=programs.local_groups,
            phase="make groups",
            world_size=12,
            par=2.0,
            culprit="barriers",
            suspects={
                "barriers": Suspect(
                    "all ranks wait for each other after every group, also for groups of others.",
                    "call counts",
                    "count the barriers: as many as groups, on every rank",
                ),
                "bytes": Suspect(
                    "making a group moves much data.", "wire meter", "a few kilobytes at most"
                ),
                "late": Suspect(
                    "one rank comes late.", "per-rank timers", "all begin within milliseconds"
                ),
            },
            production="time each new_group on rank 0; py-spy shows the others in a barrier",
            not_when="new_group itself is slow: NCCL's own set-up, which is lazy unless asked",
        ),
        Case(
            name="collector",
            title="Steps that jump in stretches",
            report=(published.COLLECTOR,),
            program=programs.collector,
            fault=programs.each_at_its_time,
            cure=programs.together,
            phase="step",
            world_size=4,
            par=1.2,
            culprit="pauses",
            suspects={
                "pauses": Suspect(
                    "each rank pauses at another step, and the others wait for it each time.",
                    "scheduler",
                    "every rank computes for a while, though its step sleeps",
                ),
                "network": Suspect("the network is slow.", "wire meter", "4 bytes per sum"),
                "calls": Suspect("there are too many calls.", "call counts", "16 sums in 16 steps"),
            },
            production="gc.callbacks with a clock; py-spy dump --native shows gc_collect_main",
            not_when="the pauses fall on the same step everywhere: then they cost once",
        ),
        Case(
            name="metrics",
            title="Four seconds to average metrics",
            report=(published.METRICS,),
            program=programs.metrics,
            fault=programs.gather_objects,
            cure=programs.reduce_tensor,
            phase="metrics",
            par=3.0,
            culprit="objects",
            suspects={
                "objects": Suspect(
                    "names travel with the figures, to everybody, and everybody unpickles all.",
                    "wire meter",
                    "2 MB per rank, for 24 kB of figures",
                ),
                "straggler": Suspect(
                    "a rank is late.", "per-rank timers", "all begin metrics at the same time"
                ),
                "calls": Suspect(
                    "there is a call for each metric.", "call counts", "a handful of calls"
                ),
            },
            production="py-spy: pickle.loads on top, on every rank; GPUs idle meanwhile",
            not_when="few metrics and few ranks: then it is the wait for the last rank",
        ),
        Case(
            name="masks",
            title="15 GB/s instead of 42",
            report=(published.AFFINITY,),
            program=programs.masks,
            fault=programs.inherit,
            cure=programs.spread,
            phase="compute",
            world_size=2,
            par=1.3,
            culprit="mask",
            suspects={
                "mask": Suspect(
                    "all ranks may use the same CPUs only: they inherited one mask.",
                    "scheduler",
                    "ranks spend as much time waiting for a CPU as on one",
                ),
                "network": Suspect("the network is slow.", "wire meter", "256 KiB per sum"),
                "late": Suspect(
                    "one rank is slow.", "per-rank timers", "all ranks are, in computing"
                ),
            },
            production="taskset -cp PID of two ranks; Cpus_allowed_list in /proc/PID/status",
            not_when="ranks have CPUs of their own and still wait: other jobs, or a quota",
        ),
        Case(
            name="first-call",
            title="The first send takes 700 ms",
            report=(published.FIRST,),
            program=programs.first_call,
            fault=programs.start_at_once,
            cure=programs.warm_up,
            phase="call 1",
            par=2.0,
            culprit="lazy",
            variables={"TORCH_GLOO_LAZY_INIT": "1"},
            suspects={
                "lazy": Suspect(
                    "connections are made at the first call.",
                    "per-rank timers",
                    "call 1 is long, calls 2 and 3 are not",
                ),
                "size": Suspect("the message is large.", "wire meter", "4 KiB"),
                "cpu": Suspect(
                    "the ranks compete for CPUs.",
                    "per-rank timers",
                    "then calls 2 and 3 would be as slow as call 1",
                ),
            },
            production="time the second call; NCCL: NCCL_RUNTIME_CONNECT, device_id= at init",
            not_when="the second call is slow as well: then it is a late rank",
        ),
        Case(
            name="buffers",
            title="GPUs that starve without NVLink",
            report=(published.BUFFERS,),
            program=programs.buffers,
            fault=programs.default_options,
            cure=programs.without_buffers,
            phase="forward",
            world_size=2,
            par=3.0,
            culprit="buffers",
            fabric=lambda: Fabric.star(hosts=2, rate="20mbit"),
            suspects={
                "buffers": Suspect(
                    "DDP sends rank 0's buffers to all before every forward.",
                    "wire meter",
                    "rank 0 sends 800 kB per step; the gradients are a few hundred bytes",
                ),
                "gradients": Suspect(
                    "the gradients are large.",
                    "per-rank timers",
                    "backward is short; it is forward that takes long",
                ),
                "input": Suspect("the input is slow.", "per-rank timers", "no phase waits for it"),
            },
            production="the profiler shows broadcasts before each forward; count them",
            not_when="the buffers must be equal: small batches that are not drawn alike",
        ),
        Case(
            name="streams",
            title="Eight flows, eight times the slowest",
            report=(published.STREAMS,),
            program=programs.streams,
            fault=programs.equal_shares,
            cure=programs.shares_by_rate,
            phase="send",
            world_size=4,
            par=1.5,
            culprit="shares",
            fabric=lambda: Fabric(
                [
                    [programs.RATES[max(a, b) - 1] if 0 in (a, b) else 40e6 for b in range(4)]
                    for a in range(4)
                ]
            ),
            suspects={
                "shares": Suspect(
                    "every path gets the same share, so the fast ones wait for the slow ones.",
                    "per-rank timers",
                    "the rank behind the fast path has its bytes long before the barrier",
                ),
                "copies": Suspect(
                    "bytes are sent twice.", "wire meter", "2 MB per call leave rank 0, no more"
                ),
                "cpu": Suspect("the CPUs are used up.", "scheduler", "ranks are blocked"),
            },
            production="ss -ti on the sender: cwnd and rate differ between the flows",
            not_when="all flows are equally slow: then it is the host or the card",
        ),
    )
}
