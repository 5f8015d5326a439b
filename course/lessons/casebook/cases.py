"""The cases: `cases.json` says what was reported, which program shows it here, who is suspected."""

import html
import json
import random
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from course import published
from course.lessons.casebook import programs, readings
from course.lessons.casebook.observe import INSTRUMENTS
from course.lessons.casebook.ward import ROUNDS, Case, Ending, Suspect, Ward, course_of, instruments
from course.predictions import ledger, ledger_file
from labkit.fabric.fabric import Fabric
from labkit.measure.records import Tier
from labkit.measure.tables import Table

REPORTED = published.load("casebook")
_HEALTHY = {"late": 0.0, "rank": 0, "length": 16_384, "calls": 1, "threads": 1}


def load(name: str) -> Any:
    """Read a data file of the ward."""
    return json.loads(Path(__file__).with_name(name).read_text(encoding="utf-8"))


def _case(name: str, fields: dict[str, Any]) -> Case:
    """Make a case; what it mends is its slow `phase` unless it names another `cost`."""
    for part in {"program", "fault", "cure", "cost"} & set(fields):
        fields[part] = getattr(programs, fields[part])
    if phase := fields.pop("phase", None):
        fields["cost"] = partial(readings.slowest, phase=phase)
        fields["cost_name"] = f"{phase}, slowest rank (ms)"
    if links := fields.pop("links", None):
        fields["fabric"] = partial(Fabric.star, **links)
    cited = [REPORTED[figure].source for figure in fields["symptom"]]
    fields["sources"] = list({source.address: source for source in cited}.values())
    fields["suspects"] = {key: Suspect(**suspect) for key, suspect in fields["suspects"].items()}
    fields["ending"] = Ending(**fields["ending"])
    return Case(name=name, **fields)


_LOADED = (_case(name, fields) for name, fields in load("cases.json").items())
CASES = {case.name: case for case in sorted(_LOADED, key=lambda case: case.lesson)}
"""By name, in the order of the lessons that they belong to."""
STORIES: list[dict[str, Any]] = load("stories.json")
"""Slow jobs that cannot be played honestly here: title, figures (by name, of `published.json`),
question, options, the `right` one's place and, as `because`, how far the source supports it."""


def ask_story(number: int) -> None:
    """Show the form of a story, numbered from 1."""
    story = STORIES[number - 1]
    question = f"{story['title']}. {story['text']} {story['question']}"
    ledger.choose(f"08.story-{number}", question, story["options"])


def end_story(number: int) -> None:
    """Tell how a story ended, once there is a vote; before it, stop the cell."""
    key, story = f"08.story-{number}", STORIES[number - 1]
    ledger.gate(key)
    letter = "abcd"[story["right"]]
    ledger.reconcile(key, letter, tier=Tier.PUBLISHED, because=story["because"])


def overview() -> Table:
    """Return what there is to play, after which lesson it comes, and how it went so far."""
    book = ledger_file.load()
    rows = [
        [
            case.name, case.title, case.lesson,
            "finished" if case.lesson in book.finished else "not yet finished",
            course_of(book.kept.get(f"case.{case.name}", {})) or "not begun",
        ]
        for case in CASES.values()
    ]  # fmt: skip
    return Table(["case", "what people saw", "belongs to lesson", "that lesson", "you"], rows)


def reported_in(case: Case) -> str:
    """Say where a case was reported, without the title of the thread: titles tell."""
    first = case.sources[0]
    owner, name, *_ = first.address.removeprefix("https://github.com/").split("/")
    return f"{owner}/{name}, {first.when}"


def draw_final() -> list[Ward]:
    """Draw three slow jobs of one program with one symptom, and nobody's report to read.

    What makes each slow is another one of four faults, on a rank and of a size that are drawn, too.
    """
    final = load("final.json")
    final["suspects"] = {key: Suspect(**suspect) for key, suspect in final["suspects"].items()}
    faults = {
        "late": {"late": random.uniform(0.01, 0.03), "rank": random.randrange(final["world_size"])},
        "calls": {"calls": random.choice((16, 24, 32))},
        "bytes": {"length": random.choice((2, 3, 4)) * 1_000_000},
        "threads": {"threads": max(2, programs.cpus())},
    }
    wards = []
    for number, culprit in enumerate(random.sample(list(faults), 3), start=1):
        name, title = f"final-{number}", f"Job {number}: slower than yesterday"
        plan = {"fault": _HEALTHY | faults[culprit], "culprit": culprit}
        wards.append(Ward(Case(name, title, program=programs.hidden, **plan, **final)))
    return wards


def late_rank(ward: Ward, rank: int) -> bool:
    """Say whether `rank` is the one that keeps the others waiting; only where one does."""
    if ward.case.culprit != "late" or not ward.solved:
        raise ValueError("this is asked only after the diagnosis that one rank comes late.")
    return rank == ward.case.fault["rank"]


class Score(NamedTuple):
    """How the final went."""

    points: str  # in figures: `2 of 3`
    how: str  # how many instruments it took, and what was guessed
    jobs: list[str]  # what each job was, and how it was found; nothing of one that is open

    def __str__(self) -> str:
        return "\n".join([f"{self.points} {self.how}", *self.jobs])

    def _repr_html_(self) -> str:
        jobs = "".join(f"<li>{html.escape(job)}</li>" for job in self.jobs)
        points = f'<div style="font-size:3em;line-height:1.2"><b>{self.points}</b></div>'
        return f"{points}<div>{html.escape(self.how)}</div><ul>{jobs}</ul>"


def score(wards: list[Ward]) -> Score:
    """Say how the final went, and what each job was."""
    right = [ward.solved and ward.tries[0].suspect == ward.case.culprit for ward in wards]
    count = instruments(sum(len(ward.asked) for ward in wards))
    guesses = sum(ward.solved and not ward.asked for ward in wards)
    guessed = f" {guesses} without any instrument: guessed." if guesses else ""
    jobs = []
    for number, (ward, is_right) in enumerate(zip(wards, right, strict=True), start=1):
        mark = "✔" if is_right else "–"
        if not ward.solved:
            jobs.append(f"{mark} Job {number}: still open")
            continue
        cause = ward.case.suspects[ward.case.culprit].says
        jobs.append(f"{mark} Job {number}: {cause} {ward.course().capitalize()}.")
    if any(ward.tries for ward in wards):
        how = f"at the first diagnosis, with {count}.{guessed}"
    else:
        how = "Nothing is diagnosed yet."
    return Score(f"{sum(right)} of {len(wards)}", how, jobs)


def play_in_terminal(ward: Ward) -> bool:
    """Play one case; return whether it came to a right diagnosis."""
    case, instruments = ward.case, dict(zip("123456", INSTRUMENTS, strict=True))
    print(f"\n{case.title}\n{case.story}")
    if case.symptom:
        print(f"Reported in {reported_in(case)}.")
    lines = [f"  {digit}  ask: {name}" for digit, name in instruments.items()]
    lines += [f"  {letter}  diagnose: {suspect.says}" for letter, suspect in ward.suspects.items()]
    menu = "\n".join(["", *lines, "  q  leave", "  m  this menu"])
    print(menu)
    while not ward.solved:
        word = input("\na number, a letter, q or m > ").strip().lower()
        if word == "q":
            return False
        if word in instruments:
            print(f"{instruments[word]}: running ...")
            print(ward.ask(instruments[word]))
        elif word in ward.suspects:
            reason = input("because: ").strip()
            print(f"its deciding instrument, {ROUNDS} times: running ...")
            print(f"{ward.diagnose(word, reason)}\n\n{ward.board}")
        elif word == "m":
            print(menu)
        else:
            print("a number asks an instrument, a letter diagnoses, q leaves, m shows the menu")
    if case.cure is not None:
        whose = "The source's own fix" if case.by_source else "A fix of ours (the source has none)"
        print(f"\n{whose}, measured:\n{ward.treat(case.cure)}\n\n{ward.close()}")
    return True


def pages() -> dict[str, str]:
    """Return a page for each case in the reading edition, as Markdown, by the name of the case."""
    return {name: "\n\n".join(_page(case)) + "\n" for name, case in CASES.items()}


def _page(case: Case) -> Iterator[str]:
    ranks = f"{case.world_size} ranks{' on shaped links' if case.fabric else ''}"
    yield f"# {case.title}\n\n{case.story}"
    yield (
        f"Play it: {ranks}. Ask instruments, commit a diagnosis; a wrong one is answered by the "
        f"measurement that refutes it.\n\n```bash\npython -m course case {case.name}\n```"
    )
    suspects = "\n".join(f"- {suspect.says}" for suspect in sorted(case.suspects.values(), key=str))
    yield f"## The suspects\n\n{suspects}"
    yield "## The end\n\n<details><summary>Only when you have a diagnosis of your own</summary>"
    yield f"**{case.suspects[case.culprit].says}** {case.ending.cause}\n\n{case.ending.rest}"
    cited = (f"[{source.title}]({source.address}), {source.when}" for source in case.sources)
    yield f"Source: {', '.join(cited)}\n\n</details>"
