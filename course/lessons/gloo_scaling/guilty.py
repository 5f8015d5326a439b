"""Three other worlds, in each of which another suspect of lesson 01 is guilty; run for real.

The experiments and their tests are the lesson's. What differs is the job:

    a   partners are on two hosts, and all pairs share the one link between them
    c   between calls the ranks are elsewhere most of the time, and the job's clock starts before
        the process groups are made, of which there is one more for each pair
    d   between calls the ranks are elsewhere, and add numbers in small steps that two threads of
        torch share: as many as there are CPUs, but each rank may use one only

(The CPUs, b, are guilty in the lesson's own world.)
"""

from dataclasses import dataclass
from functools import partial

from course.lessons.gloo_scaling import experiment as problem
from course.lessons.gloo_scaling.programs import Job
from labkit.measure.records import Record


@dataclass(frozen=True, slots=True)
class World:
    """A job, and where it runs."""

    job: Job
    calls: int = 10
    theirs: int = 10
    """That the job's own clock times."""
    most: int = problem.MOST
    rate: str | None = None


WORLDS = {
    "a": World(Job(numel=4096, large=2**16, across=True), most=4, rate="50mbit"),
    "c": World(Job(elsewhere=0.02, early_clock=True), calls=16, theirs=1),
    "d": World(Job(elsewhere=0.01, small_sums=10), calls=12),
}
"""By the letter of who is guilty."""


def measure(letter: str) -> list[Record]:
    """Make all experiments in a world; return their records.

    Raises:
        FabricUnavailable: The world needs a link, and none can be made here.
    """
    world = WORLDS[letter]
    options = {"job": world.job, "calls": world.calls}
    return [
        record
        for name, program in problem.PROGRAMS.items()
        for record in problem.ask(
            name,
            partial(program, **options, **({"theirs": world.theirs} if name == "C" else {})),
            most=world.most,
            threads=2,
            rate=world.rate,
            world=letter,
        )
    ]
