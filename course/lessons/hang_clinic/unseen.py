"""Six jobs of exercise 5b.7, whose case files the learner reads without having met the programs.

`tools.unseen_jobs` has the programs, and keeps what `launch` says of them in `unseen.json`.
"""

import json
from pathlib import Path
from typing import NamedTuple

KEPT = Path(__file__).with_name("unseen.json")
JOBS = {
    "A": "trains, and prints the accuracy after every fourth step",
    "B": "trains, and writes a checkpoint now and then",
    "C": "four stages, one a rank: each hands its output to the next",
    "D": "trains on each rank's data until the loss gets no better",
    "E": "trains for 100,000 steps",
    "F": "rank 0 sums with 1, and 2 with 3, three times",
}
"""By letter: what its owner says that it does."""
MENDS = {
    "all call": "every rank makes the call; what follows may depend on the rank",
    "decide together": "one rank decides, or all by a sum, and all are told",
    "other peer": "the call names another rank",
    "same group": "the call is made in the group in which its partners make theirs",
    "same order": "all ranks make the same calls in one order",
    "zeros": "a rank that has no data left goes on, and adds zeros",
    "less work": "nothing hangs: one rank has too much to do beside the calls",
    "nothing": "nothing hangs, and all ranks get on alike: wait longer",
}
"""What can be done about a job of exercise 5b.7."""


class Truth(NamedTuple):
    """What is right of a job, and what else is answered -> what to look at."""

    rank: int | None
    call: str
    mend: str
    ranks: dict[str, str]
    calls: dict[str, str]
    mends: dict[str, str]


def truths() -> dict[str, Truth]:
    """Return what is right of each job of exercise 5b.7, by letter."""
    text = Path(__file__).with_name("unseen_truth.json").read_text(encoding="utf-8")
    return {letter: Truth(**fields) for letter, fields in json.loads(text).items()}


def show(letter: str) -> None:
    """Print what is known of a job: what it does, and the kept case files."""
    kept = json.loads(KEPT.read_text(encoding="utf-8"))
    print(f"Job {letter}: {JOBS[letter]}.\n\n" + "\n\n".join(kept[letter]))
