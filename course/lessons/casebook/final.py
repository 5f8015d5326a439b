"""The final: three slow jobs drawn at random, with one symptom, and nobody's report to read.

All three run the same program. What makes it slow is one of four faults, on a rank and of a size
that are drawn as well.
"""

import random

from course.lessons.casebook import programs
from course.lessons.casebook.cases import load
from course.lessons.casebook.ward import Case, Suspect, Ward

RANKS = 3
_HEALTHY = {"late": 0.0, "rank": 0, "length": 16_384, "calls": 1, "threads": 1}
_STORY = (
    "Yesterday a step took half of this, or less. Same program, same machines; three ranks, ten "
    "steps of input, computing and one sum of gradients."
)


def draw() -> list[Ward]:
    """Draw three jobs with different faults and the same suspects."""
    faults = {
        "late": {"late": random.uniform(0.01, 0.03), "rank": random.randrange(RANKS)},
        "calls": {"calls": random.choice((16, 24, 32))},
        "bytes": {"length": random.choice((2, 3, 4)) * 1_000_000},
        "threads": {"threads": max(2, programs.cpus())},
    }
    jobs = [
        Case(
            name=f"final-{number}",
            title=f"Job {number}: slower than yesterday",
            lesson="08",
            story=_STORY,
            program=programs.hidden,
            fault=_HEALTHY | faults[culprit],
            suspects={key: Suspect(**one) for key, one in load("final.json").items()},
            culprit=culprit,
            world_size=RANKS,
        )
        for number, culprit in enumerate(random.sample(list(faults), 3), start=1)
    ]
    return [Ward(job) for job in jobs]


def late_rank(ward: Ward, rank: int) -> bool:
    """Say whether `rank` is the one that keeps the others waiting; only where one does."""
    if ward.case.culprit != "late" or not ward.solved:
        raise ValueError("this is asked only after the diagnosis that one rank comes late.")
    return rank == ward.case.fault["rank"]


def score(wards: list[Ward]) -> str:
    """Say how the final went."""
    right = sum(ward.solved and ward.tries[0].suspect == ward.case.culprit for ward in wards)
    asked = sum(len(ward.asked) for ward in wards)
    guesses = sum(ward.solved and not ward.asked for ward in wards)
    guessed = f" {guesses} without any instrument: guessed." if guesses else ""
    return f"{right} of {len(wards)} at the first diagnosis, with {asked} instruments.{guessed}"
