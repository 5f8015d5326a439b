"""How a case is played: ask instruments, commit a diagnosis with a reason, measure a fix."""

import contextlib
import inspect
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from course import ledger
from course.lessons.casebook import observe, readings
from course.lessons.casebook.observe import INSTRUMENTS
from labkit.fabric.fabric import Fabric
from labkit.measure import wire
from labkit.measure.tables import Table
from labkit.ranks.launcher import launch

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_WIDTH = 96
"""Characters of a timeline in text."""
PAR = 3
"""Instruments that are enough for a diagnosis."""


@dataclass(frozen=True, slots=True)
class Suspect:
    """A plausible cause, and the measurement that speaks for or against it."""

    says: str
    instrument: str
    """The instrument that decides it."""
    reading: str
    """The function of `readings` that takes one number from what that instrument saw."""
    limit: float
    """Were the suspect guilty, the reading would be above this."""
    look: str
    """What the reading is, in words; `{}` stands for its value."""
    of: Mapping[str, Any] = field(default_factory=dict)
    """Further arguments of the reading."""

    def read(self, seen: list) -> float:
        """Take the reading from what every rank saw."""
        return getattr(readings, self.reading)(seen, **self.of)


@dataclass(frozen=True, slots=True)
class Ending:
    """What is told when a case is closed."""

    cause: str
    """What it was, by the source."""
    inferred: str
    """What is not known, or not from this source."""
    production: str
    """How one would see it on a cluster."""
    not_when: str
    """When it is something else."""

    @property
    def paragraphs(self) -> list[str]:
        """The ending in words, after its cause."""
        return [
            f"Not known, or inferred: {self.inferred}",
            f"In production: {self.production}. It is not this when {self.not_when}.",
        ]


@dataclass(frozen=True, slots=True)
class Case:
    """One slow job. Those of the final have no source: no symptom, no cure, no ending."""

    name: str
    title: str
    lesson: str
    """The lesson after which the case is dealt out."""
    story: str
    program: Callable
    fault: Any
    """What the program does wrong: the function that a fix replaces."""
    suspects: Mapping[str, Suspect]
    culprit: str
    """The key of the right suspect."""
    world_size: int
    symptom: Sequence[str] = ()
    """Names of the published figures that it begins with."""
    cure: Callable | None = None
    fix: str = ""
    """How a fix is called, and what it returns."""
    cost: Callable[[list], float] | None = None
    """What a fix must lower, from what every rank saw."""
    cost_name: str = ""
    """What `cost` returns, in words."""
    par: float = 1.0
    """How many times lower a fix must make the cost."""
    ending: Ending | None = None
    fabric: Callable[[], Fabric] | None = None


def play(case: Case, fix: Callable | None = None, *, instrument: str = "") -> list:
    """Run a case's program, with its fault or with a fix; return what every rank saw."""
    args = (observe.observed, case.program, case.fault if fix is None else fix, instrument)
    with case.fabric() if case.fabric else contextlib.nullcontext() as fabric:
        return launch(*args, world_size=case.world_size, timeout=60, fabric=fabric)


@dataclass(slots=True)
class Ward:
    """A case that is being examined: counts the instruments asked, keeps diagnosis and reason."""

    case: Case
    suspects: dict[str, Suspect] = field(init=False)
    """By key, in another order each time."""
    asked: list[str] = field(default_factory=list)
    """Instruments, each once."""
    diagnosed: list[tuple[str, str]] = field(default_factory=list)
    """Suspects and reasons, in the order in which they were committed."""
    solved: bool = False

    def __post_init__(self) -> None:
        keys = random.sample(list(self.case.suspects), len(self.case.suspects))
        self.suspects = {key: self.case.suspects[key] for key in keys}

    def ask(self, instrument: str) -> "Table | Lanes":
        """Run the sick program under an instrument, and show what it saw.

        Raises:
            ValueError: There is no such instrument; the message lists those there are.
        """
        if instrument not in INSTRUMENTS:
            raise ValueError(f"no instrument {instrument!r}; there are: {', '.join(INSTRUMENTS)}.")
        seen = play(self.case, instrument=instrument)
        if instrument not in self.asked:
            self.asked.append(instrument)
        self._keep()
        return _shown(instrument, seen, self.case.title)

    def diagnose(self, suspect: str, reason: str = "") -> "Verdict":
        """Commit a diagnosis; a run of the sick program confirms or refutes it.

        Raises:
            ValueError: There is no such suspect; the message lists those there are.
            RuntimeError: Three runs contradict what is known of the case: the machine is busy.
        """
        if suspect not in self.suspects:
            raise ValueError(f"no suspect {suspect!r}; there are: {', '.join(self.suspects)}.")
        claim, right = self.suspects[suspect], suspect == self.case.culprit
        for _ in range(3):  # another program may have disturbed the run
            seen = play(self.case, instrument=claim.instrument)
            reading = claim.read(seen)
            if (reading > claim.limit) == right:
                break
        else:
            raise RuntimeError(
                f"three runs contradict what is known of this case ({claim.look.format(reading)}). "
                "Close other programs and diagnose again."
            )
        self.diagnosed.append((suspect, reason))
        self.solved |= right
        self._keep()
        text = (
            f"{'Yes.' if right else 'No.'} {claim.says} The {claim.instrument} just measured: "
            f"{claim.look.format(_written(reading))}; for this diagnosis it would be more than "
            f"{_written(claim.limit)}."
        )
        if right:
            count = len(self.asked)
            text += f" Asked before it: {count} instrument{'s' * (count != 1)}; {PAR} are enough."
        return Verdict(right, text, _shown(claim.instrument, seen, ""))

    def fault(self) -> str:
        """Return the source of what the program does wrong, and how a fix is called.

        Raises:
            ValueError: There is no right diagnosis yet.
        """
        if not self.solved:
            raise ValueError("first the diagnosis: what is to be mended is shown after it.")
        return f"# {self.case.fix}\n{inspect.getsource(self.case.fault)}"

    def treat(self, fix: Callable) -> Table:
        """Measure a fix against the fault: its cost, and whether results stayed the same.

        Both run in turns, up to three times each; the lower cost counts.

        Raises:
            ValueError: There is no right diagnosis yet.
        """
        if not self.solved:
            raise ValueError("first the diagnosis, then the fix.")
        costs: list[tuple[float, float]] = []
        same, gain = True, 0.0
        while same and gain < self.case.par and len(costs) < 3:
            sick, well = play(self.case), play(self.case, fix)
            same = [one["result"] for one in sick] == [one["result"] for one in well]
            costs.append((self.case.cost(sick), self.case.cost(well)))
            before, after = (min(column) for column in zip(*costs, strict=True))
            gain = before / after
        good = same and gain >= self.case.par
        name = "the thread's own" if fix is self.case.cure else "yours"
        return Table(
            ["", self.case.cost_name, "times better", "results"],
            [
                ["with the fault", round(before, 2), 1.0, ""],
                [name, round(after, 2), round(gain, 2), "the same" if same else "DIFFERENT"],
                ["enough", None, self.case.par, "the same"],
            ],
            "It is mended: ward.close() tells how it ended." if good else "Not yet.",
        )

    def close(self) -> str:
        """Tell how the case ended, and the cure of its source."""
        case = self.case
        lines = [
            f"It was: {case.suspects[case.culprit].says}",
            f"Found there: {case.ending.cause}",
            *case.ending.paragraphs,
            f"A cure:\n{inspect.getsource(case.cure)}",
        ]
        return "\n".join(lines)

    def _keep(self) -> None:
        values = {"asked": len(self.asked), "diagnosed": self.solved, "tries": self.diagnosed}
        ledger.keep(f"case.{self.case.name}", values)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What becomes of a diagnosis: right or not, in words, with the measurement that decides."""

    right: bool
    text: str
    shown: "Table | Lanes"

    def __str__(self) -> str:
        return f"{self.text}\n{self.shown}"


@dataclass(frozen=True, slots=True)
class Lanes:
    """A timeline: text in a terminal, a picture in a notebook."""

    seen: list
    title: str

    def __str__(self) -> str:
        """Draw a lane of characters for each rank: the first letters of its phases."""
        begin, end = self.ends
        lines = [self.title] if self.title else []
        for one in self.seen:
            lane = ["."] * _WIDTH
            for span in one["spans"]:  # what lies inside another one begins after it
                left, right = (
                    int((at - begin) / (end - begin) * (_WIDTH - 1))
                    for at in (span.begin, span.end)
                )
                lane[left : right + 1] = span.name[0] * (right + 1 - left)
            lines.append(f"rank {one['rank']:>2} |{''.join(lane)}|")
        legend = ", ".join(f"{phase[0]} {phase}" for phase in phases_of(self.seen))
        return "\n".join([*lines, f"{1e3 * (end - begin):.1f} ms in all; {legend}"])

    @property
    def ends(self) -> tuple[float, float]:
        """The first begin and the last end of all phases, in seconds."""
        spans = [span for one in self.seen for span in one["spans"]]
        return min(s.begin for s in spans), max(s.end for s in spans)

    def html(self) -> str:
        """Draw it as a picture, with its text alternative."""
        from labkit.show import alt_text  # the terminal does without matplotlib

        return alt_text.to_html(self.draw())

    def draw(self) -> "Axes":
        """Draw it: phases as bars, a phase inside another one as a thin bar below."""
        from labkit.show import timeline

        begin, end = self.ends
        bars = []
        for lane, one in enumerate(self.seen):
            reached = begin
            for s in one["spans"]:
                times = s.begin - begin, s.end - begin
                bars.append(timeline.Bar(lane, s.name, *times, behind=s.end <= reached))
                reached = max(reached, s.end)
        description = f"{self.title} {1e3 * (end - begin):.1f} ms of {len(self.seen)} ranks."
        names = [f"rank {one['rank']}" for one in self.seen]
        return timeline.draw_lanes(names, bars, description=description, title=self.title, y="Rank")

    _repr_html_ = html


def phases_of(seen: list) -> list[str]:
    """Return the phases of all ranks, in the order in which they first appear."""
    return list(dict.fromkeys(span.name for one in seen for span in one["spans"]))


def _shown(instrument: str, seen: Any, title: str) -> Table | Lanes:
    if instrument == "timeline":
        return Lanes(seen, title)
    columns, rows = _TABLES[instrument](seen)
    return Table(columns, rows, title)


def _timers(seen: list) -> tuple[list, list]:
    start, phases = min(one["spans"][0].begin for one in seen), phases_of(seen)
    rows = []
    for one in seen:
        row = [one["rank"]]
        for phase in phases:
            spans = readings.stretches(one, phase)
            times = (spans[0].begin - start, readings.total(one, phase)) if spans else ()
            row += [round(1e3 * seconds, 1) for seconds in times] or [None, None]
        rows.append(row)
    return ["rank", *(c for p in phases for c in (f"{p}: begins (ms)", f"{p} (ms)"))], rows


def _scheduler(seen: list) -> tuple[list, list]:
    columns = ["rank", "CPUs", "wall (ms)", "on a CPU (ms)", "waiting for one (ms)", "lost the CPU"]
    rows = []
    for one in seen:
        usage = one["usage"]
        times = (round(1e3 * t, 1) for t in (usage.wall, usage.on_cpu, usage.waiting))
        rows.append([one["rank"], len(one["cpus"]), *times, usage.involuntary])
    return columns, rows


def _wire(seen: list) -> tuple[list, list]:
    sent = wire.matrix([one["report"] for one in seen])
    through = list(dict.fromkeys(n for one in seen for n, sent in one["through"].items() if sent))
    rows = [
        [i, *map(int, row), *(one["through"].get(name, 0) for name in through)]
        for i, (row, one) in enumerate(zip(sent, seen, strict=True))
    ]
    ranks = map(str, range(len(seen)))
    return ["bytes from, to", *ranks, *(f"through {name}" for name in through)], rows


def _call_counts(seen: list) -> tuple[list, list]:
    kinds = list(dict.fromkeys(kind for one in seen for kind in one["calls"]))
    rows = [[one["rank"], *(one["calls"].count(kind) for kind in kinds)] for one in seen]
    return ["rank", *kinds], rows


def _environment(seen: list) -> tuple[list, list]:
    rows = []
    for one in seen:
        interfaces = ", ".join(one["interfaces"])
        variables = ", ".join(f"{name}={value}" for name, value in one["variables"].items())
        allowed = ",".join(map(str, one["cpus"]))
        rows.append([one["rank"], allowed, one["threads"], interfaces, variables])
    return ["rank", "CPUs it may use", "threads it computes with", "interfaces", "variables"], rows


_TABLES = {
    "wire meter": _wire,
    "scheduler": _scheduler,
    "call counts": _call_counts,
    "per-rank timers": _timers,
    "environment": _environment,
}


def _written(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
