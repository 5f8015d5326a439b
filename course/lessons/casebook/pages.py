"""A page for each case in the reading edition."""

from collections.abc import Iterator

from course.lessons.casebook.cases import CASES
from course.lessons.casebook.ward import Case


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
    yield "<details><summary>Only when you have a diagnosis of your own</summary>"
    yield f"**{case.suspects[case.culprit].says}** {case.ending.cause}"
    yield from case.ending.paragraphs
    cited = (f"[{one.title}]({one.address}), {one.when}" for one in case.sources)
    yield f"Source: {', '.join(cited)}"
    yield "</details>"
