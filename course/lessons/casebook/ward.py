"""How a case is played: ask instruments, commit a diagnosis with a reason, measure a fix."""

import contextlib
import html
import inspect
import math
import random
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

from course import other_programs, published
from course.lessons.casebook import observe, readings
from course.lessons.casebook.observe import INSTRUMENTS
from course.place import launch
from course.predictions import judging, ledger
from course.predictions.board import NOT_JUDGED, STANDS, Board, Experiment, Test
from course.predictions.figures import written
from course.runs import quiet
from labkit.fabric.fabric import Fabric
from labkit.measure import wire
from labkit.measure.tables import Table
from labkit.ranks.errors import CaseFile, LaunchTimeout

ROUNDS = 3  # runs that must agree, of a diagnosis and of a fix


@dataclass(frozen=True, slots=True)
class Suspect:
    """A plausible cause, and the measurement that speaks for or against it."""

    says: str
    instrument: str  # the instrument that decides it
    reading: str  # the function of `readings` that takes one number from what that instrument saw
    limit: float  # were the suspect guilty, the reading would be above this
    look: str  # what the reading is, in words that begin with its value, `{}`, and its unit
    of: Mapping[str, Any] = field(default_factory=dict)  # further arguments of the reading

    def read(self, seen: list) -> float:
        """Take the reading from what every rank saw."""
        return getattr(readings, self.reading)(seen, **self.of)


@dataclass(frozen=True, slots=True)
class Ending:
    """What is told when a case is closed."""

    cause: str  # what it was, by the source
    inferred: str  # what is not known, or not from this source
    production: str  # how one would see it on a cluster
    not_when: str  # when it is something else

    @property
    def rest(self) -> str:
        """Two paragraphs that follow the cause."""
        in_production = f"In production: {self.production}. It is not this when {self.not_when}."
        return f"Not known, or inferred: {self.inferred}\n\n{in_production}"


@dataclass(frozen=True, slots=True)
class Case:
    """One slow job. Those of the final have no source: no symptom, no cure, no ending."""

    name: str
    title: str
    lesson: str
    story: str
    program: Callable
    fault: Any  # what the program does wrong: the function that a fix replaces
    suspects: Mapping[str, Suspect]
    culprit: str  # the key of the right suspect
    world_size: int
    symptom: Sequence[str] = ()  # names of the published figures that it begins with
    cure: Callable | None = None
    fix: str = ""  # how a fix is called, and what it returns
    by_source: bool = True
    """Whether cause and cure are the source's; else a suspicion of its, and a cure of ours."""
    sources: Sequence[published.Source] = ()
    cost: Callable[[list], float] | None = None  # what a fix must lower, from what every rank saw
    cost_name: str = ""  # what `cost` returns, in words
    par: float = 1.0  # how many times lower a fix must make the cost
    ending: Ending | None = None
    fabric: Callable[[], Fabric] | None = None


def play(
    case: Case, fix: Callable | None = None, *, instrument: str = "", timeout: float = 60.0
) -> list:
    """Run a case's program, with its fault or with a fix; return what every rank saw.

    `FixFailed` says who waits for whom where it has not come to its end after `timeout` seconds.
    """
    args = (observe.observed, case.program, case.fault if fix is None else fix, instrument)
    with case.fabric() if case.fabric else contextlib.nullcontext() as fabric:
        try:
            return launch(*args, world_size=case.world_size, timeout=timeout, fabric=fabric)
        except LaunchTimeout as error:
            raise FixFailed(_standing(error.case, timeout)) from error


def _standing(hang: CaseFile, timeout: float) -> str:
    """Say where ranks stand that never come to their end: in a circle, or in which calls."""
    import networkx as nx  # slowly: most cases come to their end

    pairs, calls = [], []
    for rank in hang.ranks:
        if rank.waiting_in:
            calls.append(f"rank {rank.rank} in {rank.waiting_in.name}")
        elif rank.messages:  # the last one holds it up: "recv from rank 2"
            kind, *_, peer = rank.messages[-1].split()
            calls.append(f"rank {rank.rank} in {kind}")
            pairs.append((rank.rank, int(peer)))
    if ring := min(nx.simple_cycles(nx.DiGraph(pairs)), default=[]):
        chain = ", ".join(f"rank {a} for {b}" for a, b in pairwise([*ring, ring[0]]))
        return f"It never ends: a circle. Each waits for the next: {chain}."
    where = ", ".join(calls) or "no rank waits in a call"
    return f"It has not ended after {timeout:.0f} s: {where}."


class FixFailed(ValueError):
    """A fix that could not be measured; says so in one line, in a notebook as well."""

    def _render_traceback_(self) -> list[str]:
        return [str(self)]


class Try(NamedTuple):
    """A diagnosis that was committed."""

    suspect: str  # the key of the suspect, as in the case
    reason: str
    outcome: str
    """`stands`, `fell` or `not judged`: what the suspect's own reading said in this run."""


@dataclass(slots=True)
class Ward:
    """A case that is being examined: counts the instruments asked, keeps diagnosis and reason."""

    case: Case
    suspects: dict[str, Suspect] = field(init=False)  # by letter, the same every time
    board: Board = field(init=False)
    """What the suspects' own readings said; a column for each instrument that decided something."""
    asked: list[str] = field(default_factory=list)  # instruments, each once
    tries: list[Try] = field(default_factory=list)
    solved: bool = False
    gain: float = 0.0  # how many times less the best fix costs that was accepted; 0: none yet
    _keys: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        keys = sorted(self.case.suspects)
        random.Random(" ".join(keys)).shuffle(keys)  # their own order would tell something
        self._keys = dict(zip("abcdef", keys, strict=False))
        self.suspects = {letter: self.case.suspects[key] for letter, key in self._keys.items()}
        names = {letter: suspect.says for letter, suspect in self.suspects.items()}
        self.board = Board("What do the suspects' own readings say?", names, {}, say=quiet)

    def letter(self, key: str) -> str:
        """Return under which letter a suspect of the case stands here."""
        return next(letter for letter, its in self._keys.items() if its == key)

    def ask(self, instrument: str) -> "Table | Markdown":
        """Run the sick program under an instrument, one of `INSTRUMENTS`, and show what it saw."""
        if instrument not in INSTRUMENTS:
            raise ValueError(f"no instrument {instrument!r}; there are: {', '.join(INSTRUMENTS)}.")
        seen = play(self.case, instrument=instrument)
        if instrument not in self.asked:
            self.asked.append(instrument)
        self._keep()
        return _shown(instrument, seen, self.case.title)

    def diagnose(self, suspect: str, reason: str = "") -> "Verdict":
        """Commit a diagnosis; the suspect's own reading, in `ROUNDS` runs, says what becomes of it.

        `suspect` is its letter, `reason` what has been seen that speaks for it.
        """
        if suspect not in self.suspects:
            raise ValueError(f"no suspect {suspect!r}; there are: {', '.join(self.suspects)}.")
        claim = self.suspects[suspect]
        with other_programs.watch() as others:
            runs = [play(self.case, instrument=claim.instrument) for _ in range(ROUNDS)]
        values = [claim.read(seen) for seen in runs]
        self.board.experiments.setdefault(claim.instrument, Experiment("while it is sick"))
        test = self.board.test(
            suspect,
            claim.instrument,
            claim.look.format(f"more than {written(claim.limit, 3)}"),
            [value > claim.limit for value in values],
            found=claim.look.format(written(statistics.median(values), 3)),
            others=others.cpus,
        )
        right = self._keys[suspect] == self.case.culprit
        self.tries.append(Try(self._keys[suspect], reason, test.state))
        confirmed = right and test.state == STANDS
        self.solved |= confirmed
        self._keep()
        shown = _shown(claim.instrument, runs[-1], "")
        return Verdict(confirmed, test.state, self._verdict(test, claim, right=right), shown)

    def _verdict(self, test: Test, claim: Suspect, *, right: bool) -> str:
        disturbed = test.judged.disturbed
        busy = f" Other programs used {test.judged.others:.1f} CPUs." if disturbed else ""
        if test.state == NOT_JUDGED:
            again = "Close other programs and commit again." if busy else "Set the case up anew."
            became = f"not judged, either way. {again}"
        elif (test.state == STANDS) != right:
            became = (
                f"the suspect {test.state}, and on our calm machine it did not.{busy} What differs "
                "in your run? The case stays open."
            )
        else:
            became = f"the suspect {test.state}."
        if not self.asked:
            became += " You have asked no instrument before: this was a guess."
        elif right and test.state == STANDS:
            became += f" Before it you asked {instruments(len(self.asked))}."
        return (
            f"{claim.says} For this the {claim.instrument} would show {test.predicts}. It showed "
            f"{test.found}{f' ({test.weight})' if test.weight else ''}: {became}"
        )

    def fault(self) -> str:
        """Return the source of what the program does wrong, and how a fix is called.

        A `ValueError` says that there is no right diagnosis yet.
        """
        if not self.solved:
            raise ValueError("first the diagnosis: what is to be mended is shown after it.")
        return f"# {self.case.fix}\n{inspect.getsource(self.case.fault)}"

    def treat(self, fix: Callable) -> Table:
        """Measure a fix against the fault, in `ROUNDS` rounds in which both take turns.

        It is accepted if in every round the cost is low enough, the culprit's own reading is no
        longer above its limit, and every rank returns what it returned before. Rounds that do not
        agree decide nothing. `FixFailed` says that the fix is no function, fails, returns what
        cannot be used, or never ends, a `ValueError` that there is no right diagnosis yet.
        """
        if not self.solved:
            raise ValueError("first the diagnosis, then the fix.")
        case, culprit = self.case, self.case.suspects[self.case.culprit]
        if not callable(fix):
            raise FixFailed(f"treat() measures a function, not {fix!r}: {case.fix}")
        rounds, different = [], ""
        with other_programs.watch() as others:
            while len(rounds) < ROUNDS and not different:
                rounds.append(self._round(fix, culprit))
                different = rounds[-1].different
        outcomes = [each.outcome(case.par, culprit.limit) for each in rounds]
        judged = judging.judge(outcomes, others=others.cpus)
        gone = all(each.reading_now <= culprit.limit for each in rounds)
        if judged.outcome is False and judged.disturbed and gone:
            judged = judged._replace(outcome=None)  # others may have taken the time that it saved
        middle = Round.middle(rounds)
        if judged.outcome:
            self.gain = max(self.gain, middle.gain)
            self._keep()
        name = "yours" if fix is not case.cure else "the source's" if case.by_source else "ours"
        same, enough = "DIFFERENT" if different else "the same", written(culprit.limit, 3)
        return Table(
            ["", case.cost_name, "times better", culprit.look.format("").strip(" ,"), "results"],
            [
                ["with the fault", middle.cost, 1.0, middle.reading, ""],
                [name, middle.cost_now, middle.gain, middle.reading_now, same],
                ["enough", None, case.par, f"at most {enough}", "the same"],
            ],
            _treated(judged, middle, case, culprit, different),
        )

    def _round(self, fix: Callable, culprit: Suspect) -> "Round":
        """Run the sick program and the mended one, both under the culprit's instrument."""
        sick, cost = play(self.case, instrument=culprit.instrument), self.case.cost
        began, ended = _ends(sick)
        limit = max(3.0, 10 * (ended - began))  # with what it takes to look, one waits five
        try:
            well = play(self.case, fix, instrument=culprit.instrument, timeout=limit)
        except FixFailed:
            raise
        except Exception as error:
            first_line = str(error).strip().partition("\n")[0].rstrip()
            raise FixFailed(
                f"With your function a rank ended in {type(error).__name__}: {first_line} It is "
                f"called like this: {self.case.fix}"
            ) from error
        if different := _difference(sick, well):
            return Round(cost(sick), math.nan, culprit.read(sick), math.nan, different)
        try:
            return Round(cost(sick), cost(well), culprit.read(sick), culprit.read(well))
        except (ArithmeticError, ValueError, IndexError) as error:
            raise FixFailed(
                "With your function there is nothing to measure. It is called like this: "
                f"{self.case.fix}"
            ) from error

    def close(self) -> "Markdown":
        """Tell how the case ended, and the cure of its source; nothing before the diagnosis."""
        case = self.case
        if not self.solved:
            so_far = f" You have tried {len(self.tries)} so far." if self.tries else ""
            return Markdown(f"Still open: what it was is told after the right diagnosis.{so_far}")
        if case.by_source:
            where, whose = "Found there", "The source's cure"
        else:
            where, whose = "Suspected there", "A cure of ours; the source has none"
        paragraphs = [
            f"**It was: {case.suspects[case.culprit].says}**",
            f"You: {self.course()}.",
            f"{where}: {case.ending.cause}\n\n{case.ending.rest}",
            f"{whose}:\n\n```python\n{inspect.getsource(case.cure)}```",
            *(
                f"Source: [{source.title}]({source.address}), {source.when}"
                for source in case.sources
            ),
        ]
        return Markdown("\n\n".join(paragraphs))

    def course(self) -> str:
        """Say how the examination went so far, in a few words."""
        return course_of(self._kept())

    def _kept(self) -> dict[str, Any]:
        tries, gain = [list(diagnosis) for diagnosis in self.tries], round(self.gain, 2)
        return {"asked": len(self.asked), "diagnosed": self.solved, "gain": gain, "tries": tries}

    def _keep(self) -> None:
        ledger.keep(f"case.{self.case.name}", self._kept())


def course_of(kept: Mapping[str, Any]) -> str:
    """Say in a few words how an examination went, from what the ledger keeps of it."""
    tries, instruments_asked = len(kept.get("tries") or []), kept.get("asked") or 0
    if not tries and not instruments_asked:
        return ""
    if not kept.get("diagnosed"):
        tried = f"{tries or 'no'} {'try' if tries == 1 else 'tries'}"
        return f"so far: {instruments(instruments_asked)} asked, {tried}"
    how = f"diagnosed with {instruments(instruments_asked)}" if instruments_asked else "guessed"
    gain = kept.get("gain") or 0.0
    mended = f", mended: {gain:.3g} times better" if gain else ""
    return f"{how}, at try {tries}{mended}"


def instruments(count: int) -> str:
    """Count instruments in words."""
    return f"{count or 'no'} instrument{'' if count == 1 else 's'}"


class Round(NamedTuple):
    """What one round of a treatment found: with the fault, and now, with the fix."""

    cost: float
    cost_now: float
    reading: float  # the culprit's own
    reading_now: float
    different: str = ""  # what differs in the results, in words; empty if nothing does

    @classmethod
    def middle(cls, rounds: Sequence["Round"]) -> "Round":
        """Return the medians of these rounds."""
        return cls(
            cost=statistics.median(each.cost for each in rounds),
            cost_now=statistics.median(each.cost_now for each in rounds),
            reading=statistics.median(each.reading for each in rounds),
            reading_now=statistics.median(each.reading_now for each in rounds),
        )

    @property
    def gain(self) -> float:
        """How many times less the fix costs."""
        return self.cost / self.cost_now

    def outcome(self, par: float, limit: float) -> bool | None:
        """Say whether the fault is mended; None where the cost lies between yes and no."""
        if self.different or self.reading_now > limit:
            return False
        if self.reading <= limit:
            return None  # the fault itself did not show
        return judging.outcome(self.gain, stands=par, fell=(1 + par) / 2)


def _treated(
    judged: judging.Judged, middle: Round, case: Case, culprit: Suspect, different: str
) -> str:
    """Say what became of a fix."""
    if different:
        return f"Not mended: the ranks return something else. {different}"
    if judged.outcome is None:
        return f"Not judged: {judged.why_not}."
    if judged.outcome:
        rounds = f"{len(judged.rounds)} of {len(judged.rounds)} rounds"
        return f"It is mended, in {rounds}. Its close() tells how it ended."
    if middle.reading_now > culprit.limit:
        faster = ", though it took less time" if middle.gain >= case.par else ""
        now = culprit.look.format(written(middle.reading_now, 3))
        return f"Not mended: what was diagnosed is still there{faster}. Now: {now}."
    return f"Not mended: {written(middle.gain, 3)} times better; {case.par:g} times are needed."


def _difference(sick: list, well: list) -> str:
    """Say where the mended program's results differ from the sick one's first; "" if nowhere."""
    for before, after in zip(sick, well, strict=True):
        a, b, where = before["result"], after["result"], ""
        if isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
            a, b = ({f"element {i}": x for i, x in enumerate(part)} for part in (a, b))
        if isinstance(a, dict) and isinstance(b, dict) and a != b:
            key = next(k for k in [*a, *b] if a.get(k) != b.get(k))
            where, a, b = f", {key}", a.get(key), b.get(key)
        if a != b:
            return f"Rank {before['rank']}{where}: {b}, with the fault {a}."
    return ""


class Markdown(str):
    """A text that a notebook lays out, and that can be read in a terminal as it is."""

    __slots__ = ()

    def _repr_markdown_(self) -> str:
        return str(self)

    def html(self) -> str:
        """Return what stands in its fence, as it stands."""
        inside = "\n".join(self.splitlines()[1:-1])
        return f"<pre>{html.escape(inside)}</pre>"


class Verdict(NamedTuple):
    """What becomes of a diagnosis: in words, with the last measurement that decided."""

    right: bool  # whether the case is solved by it
    state: str  # `stands`, `fell` or `not judged`
    text: str
    shown: Table | Markdown

    def __str__(self) -> str:
        return f"{self.text}\n{self.shown}"

    def _repr_markdown_(self) -> str:
        shown = self.shown if isinstance(self.shown, Markdown) else _as_it_stands(self.shown)
        return f"{self.text}\n\n{shown}"


def _as_it_stands(text: object) -> Markdown:
    return Markdown(f"```text\n{text}\n```")


def _timeline(seen: list, title: str) -> Markdown:
    """Draw a lane of characters for each rank: the first letters of its phases."""
    begin, end = _ends(seen)
    lines = [title] if title else []
    for rank in seen:
        lane = ["."] * 96
        for span in rank["spans"]:  # what lies inside another one begins after it
            left, right = (int((at - begin) / (end - begin) * 95) for at in (span.begin, span.end))
            lane[left : right + 1] = span.name[0] * (right + 1 - left)
        lines.append(f"rank {rank['rank']:>2} |{''.join(lane)}|")
    legend = ", ".join(f"{phase[0]} {phase}" for phase in phases_of(seen))
    return _as_it_stands("\n".join([*lines, f"{1e3 * (end - begin):.1f} ms in all; {legend}"]))


def _ends(seen: list) -> tuple[float, float]:
    """Return the first begin and the last end of all phases, in seconds."""
    spans = [span for rank in seen for span in rank["spans"]]
    return min(span.begin for span in spans), max(span.end for span in spans)


def phases_of(seen: list) -> list[str]:
    """Return the phases of all ranks, in the order in which they first appear."""
    return list(dict.fromkeys(span.name for rank in seen for span in rank["spans"]))


def _shown(instrument: str, seen: list, title: str) -> Table | Markdown:
    if instrument == "timeline":
        return _timeline(seen, title)
    rows = [{"rank": rank["rank"]} | _row(instrument, rank, seen) for rank in seen]
    columns = ["bytes from, to" if instrument == "wire meter" else "rank", *[*rows[0]][1:]]
    return Table(columns, [[*row.values()] for row in rows], title)


def _row(instrument: str, own: dict, seen: list) -> dict[str, Any]:
    """Return what an instrument shows of one rank, by column; `seen` is what all have seen."""
    match instrument:
        case "wire meter":
            sent = wire.matrix([rank["report"] for rank in seen])[own["rank"]]
            used = dict.fromkeys(n for rank in seen for n, x in rank["through"].items() if x)
            through = {f"through {name}": own["through"].get(name, 0) for name in used}
            return {str(rank): int(count) for rank, count in enumerate(sent)} | through
        case "scheduler":
            usage = own["usage"]
            waiting = max(thread.waiting for thread in usage.threads)  # a sum exceeds the wall's
            times = {"wall": usage.wall, "on a CPU": usage.on_cpu, "waiting for one": waiting}
            in_ms = {f"{name} (ms)": round(1e3 * seconds, 1) for name, seconds in times.items()}
            return {"CPUs": len(own["cpus"])} | in_ms | {"lost the CPU": usage.involuntary}
        case "call counts":
            kinds = dict.fromkeys(kind for rank in seen for kind in rank["calls"])
            return {kind: own["calls"].count(kind) for kind in kinds}
        case "per-rank timers":
            start = min(rank["spans"][0].begin for rank in seen)
            row = {}
            for phase in phases_of(seen):
                begins = [span.begin - start for span in readings.stretches(own, phase)]
                took = readings.total(own, phase)
                row[f"{phase}: begins (ms)"] = round(1e3 * begins[0], 1) if begins else None
                row[f"{phase} (ms)"] = round(1e3 * took, 1) if begins else None
            return row
    return {
        "CPUs it may use": ",".join(map(str, own["cpus"])),
        "threads it computes with": own["threads"],
        "interfaces": ", ".join(own["interfaces"]),
        "variables": ", ".join(f"{name}={value}" for name, value in own["variables"].items()),
    }
