"""When a measurement decides: its rounds agree, or it was made on a calm machine.

Noise is judged both ways. A comparison is made within one run, in at least `LEAST` rounds that take
turns with what they are compared with. Where all rounds agree they decide, whatever other programs
did; where they disagree nothing is decided, however few there are that differ. (A ratio of times
may ask for more: programs that stay use the CPUs in every round alike.) Fewer rounds count
as a single measurement: if other programs used more than `limit()` CPUs meanwhile, it decides
nothing, whether or not it came out as we like. Nothing is run again until it agrees.
"""

import functools
from collections.abc import Iterable
from typing import NamedTuple

from course.other_programs import Snapshot, limit, root
from course.runs import shell
from labkit.measure.records import Record
from labkit.ranks.machine import usable_cpus

LEAST = 3  # rounds that decide by agreeing
CROWDED = 0.5
"""Share of the CPUs that we may use. Where other programs use more, a short program that runs alone
is slow in every round, and a ratio of times is wrong in all of them alike."""
SHORTEST = 0.3  # seconds over which what others used can be told
Rounds = bool | None | Iterable[bool | None]
"""Of each round whether it came out so, or None where it says nothing; one value is one round."""


class Judged(NamedTuple):
    """What some rounds come to."""

    outcome: bool | None  # none: not judged
    rounds: tuple[bool | None, ...]
    others: float | None  # CPUs that other programs used meanwhile, where that is known
    crowded: bool = False  # whether rounds that agree were not believed, since others used so much

    @property
    def disturbed(self) -> bool:
        """Whether other programs used more CPUs than `limit()`."""
        return (self.others or 0.0) > limit()

    @property
    def why_not(self) -> str:
        """Say why nothing was decided; empty where something was."""
        if self.outcome is not None:
            return ""
        used = f"other programs used {self.others:.1f} CPUs" if self.disturbed else ""
        if self.crowded:
            return f"{used}, too many for a ratio of times, whatever the rounds say"
        agree = len(set(self.rounds)) == 1 and self.rounds[0] is not None
        if agree or len(self.rounds) == 1:  # a single round is not split
            return used
        return "; ".join(filter(None, [self._split(), used]))

    def _split(self) -> str:
        """Say how many rounds say what; those that lie between the limits are named, too."""
        words = {True: "yes", False: "no", None: "neither"}
        counts = {word: self.rounds.count(outcome) for outcome, word in words.items()}
        parts = [f"{n} {'says' if n == 1 else 'say'} {word}" for word, n in counts.items() if n]
        return f"of {len(self.rounds)} rounds {', '.join(parts)}"


def judge(rounds: Rounds, *, others: float | None = None, ratio: bool = False) -> Judged:
    """Decide by rounds.

    Args:
        rounds: Of each round, whether it came out so.
        others: CPUs that other programs used meanwhile; None where nobody looked, or where noise
            cannot have made the result: arithmetic, a log, somebody's published figure.
        ratio: Whether it is a ratio of times that programs beside it bend in every round alike.
            It is not judged where these use more than `CROWDED`.

    Raises:
        ValueError: There is no round.

    Example:
        >>> judge([True, True, True], others=1.6).outcome
        True
        >>> judge([True, True, False]).why_not
        'of 3 rounds 2 say yes, 1 says no'
        >>> judge(True, others=1.6).why_not
        'other programs used 1.6 CPUs'
    """
    listed = [rounds] if rounds is None or not isinstance(rounds, Iterable) else list(rounds)
    seen = tuple(None if came_out is None else bool(came_out) for came_out in listed)
    if not seen:
        raise ValueError("rounds is empty: give the outcome of each round, three at least.")
    few = len(seen) < LEAST and (others or 0.0) > limit()
    crowded = ratio and (others or 0.0) > CROWDED * usable_cpus()
    agree = len(set(seen)) == 1
    decided = agree and not few and not crowded
    return Judged(seen[0] if decided else None, seen, others, crowded)


def outcome(figure: float, *, stands: float, fell: float) -> bool | None:
    """Judge the figure of one round by two limits: what lies between them says nothing.

    Args:
        figure: What the round gave.
        stands: From here on the suspect stands ...
        fell: ... and from here on it falls: the other side.

    Example:
        A late rank is guilty if the calls grow by half of its delay, innocent below a quarter:

        >>> outcome(0.9, stands=0.5, fell=0.25), outcome(0.02, stands=0.5, fell=0.25)
        (True, False)
    """
    more_is_guilty = stands > fell
    if figure >= stands if more_is_guilty else figure <= stands:
        return True
    if figure <= fell if more_is_guilty else figure >= fell:
        return False
    return None


def outcomes(figures: Iterable[float], *, stands: float, fell: float) -> list[bool | None]:
    """Judge the figures of some rounds, each as `outcome` does.

    Example:
        >>> outcomes([0.9, 0.3, 0.02], stands=0.5, fell=0.25)
        [True, None, False]
    """
    return [outcome(figure, stands=stands, fell=fell) for figure in figures]


def others_in(records: Iterable[Record]) -> float | None:
    """Return the most CPUs that others used in any record; of this notebook's cells without one."""
    used = [record.others for record in records if record.others is not None]
    return max(used, default=None) if used else watch_cells().others()


class Cells:
    """What others used of the CPUs in each of this notebook's cells since somebody asked."""

    def __init__(self) -> None:
        self.ended: list[tuple[float, float]] = []
        """Of each cell its seconds, and the CPUs that others used."""
        self.is_asked = False
        self.begin()

    def begin_cell(self, _: object) -> None:
        """Begin a cell; what was asked about is over."""
        if self.is_asked:
            self.ended = []
        self.is_asked = False
        self.begin()

    def begin(self) -> None:
        """Look at all processes."""
        self.before = Snapshot.take()

    def end(self, _: object = None) -> None:
        """Note what others used since the last look."""
        after = Snapshot.take()
        if self.before is not None and after is not None:
            used = self.before.cpus_of_others(after, ours=root())
            self.ended.append((after.clock - self.before.clock, used))

    def others(self) -> float | None:
        """Return the most that others used in a cell, this one so far among them.

        Cells too short for such a figure count together.
        """
        self.end()
        self.begin()
        self.is_asked = True
        long = [cpus for seconds, cpus in self.ended if seconds >= SHORTEST]
        total = sum(seconds for seconds, _ in self.ended)
        if long or total < SHORTEST:
            return max(long, default=None)
        return sum(seconds * cpus for seconds, cpus in self.ended) / total


@functools.cache
def watch_cells() -> Cells:
    """Watch from here on what others use in this notebook's cells; a gate calls it."""
    cells = Cells()
    if ipython := shell():
        ipython.events.register("pre_run_cell", cells.begin_cell)
        ipython.events.register("post_run_cell", cells.end)
    return cells
