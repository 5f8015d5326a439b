"""A page for each case in the reading edition, and what could not be played: stories."""

import json
from collections.abc import Iterator
from pathlib import Path

from course.lessons.casebook.cases import CASES, REPORTED
from course.lessons.casebook.ward import Case

STORIES = json.loads(Path(__file__).with_name("stories.json").read_text(encoding="utf-8"))
"""Slow jobs that cannot be played honestly here: title, figures, question, options, what is known.

The figures' names are of `published.json`; `right` is the place of the option that the source
supports, `because` says how far.
"""


def pages() -> dict[str, str]:
    """Return the pages, as Markdown, by the name of the case."""
    return {name: "\n\n".join(_page(case)) + "\n" for name, case in CASES.items()}


def _page(case: Case) -> Iterator[str]:
    yield f"# {case.title}"
    yield case.story
    yield (
        f"Play it: {case.world_size} ranks"
        f"{' on shaped links' if case.fabric else ''}. Ask instruments, commit a diagnosis; a "
        "wrong one is answered by the measurement that refutes it."
    )
    yield f"```bash\npython -m course case {case.name}\n```"
    yield "## The suspects"
    yield "\n".join(f"- {suspect.says}" for suspect in sorted(case.suspects.values(), key=str))
    yield "## The end"
    end, cited = case.ending, [REPORTED[name].source for name in case.symptom]
    links = ", ".join(f"[{one.title}]({one.address}), {one.when}" for one in cited)
    yield (
        "<details><summary>Only when you have a diagnosis of your own</summary>\n\n"
        f"**{case.suspects[case.culprit].says}** {end.found}\n\nNot known, or inferred: "
        f"{end.inferred}\n\nIn production: {end.production}. It is not this when {end.not_when}."
        f"\n\nSource: {links}\n\n</details>"
    )
