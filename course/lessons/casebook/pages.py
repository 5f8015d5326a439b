"""A page for each case in the reading edition, from what `cases` knows of it."""

from collections.abc import Iterator

from course.lessons.casebook.cases import CASES
from course.lessons.casebook.ward import Case

CAPTION = "Cases"


def pages() -> dict[str, str]:
    """Return the pages, as Markdown, by the name of the case."""
    return {name: "\n\n".join(_page(case)) + "\n" for name, case in CASES.items()}


def _page(case: Case) -> Iterator[str]:
    yield f"# {case.title}"
    for one in case.report:
        figures = one.value if isinstance(one.value, tuple) else (one.value,)
        yield (
            f"> {one.quotation}\n>\n> — [{one.source.title}]({one.source.address}), "
            f"{one.source.when}"
        )
        yield f"PUBLISHED: {', '.join(f'{figure:g}' for figure in figures)} {one.unit}."
    yield (
        f"It happens again, small, on your machine: {case.world_size} ranks"
        f"{', joined by shaped links' if case.fabric else ''}. Ask instruments, commit a "
        "diagnosis, and a wrong one is answered by the measurement that refutes it:"
    )
    yield f"```bash\npython -m course case {case.name}\n```"
    yield "Two or three instruments should do. [Lesson 08](../lessons/08_casebook.ipynb) plays it."
    yield "## The suspects"
    for key, suspect in case.suspects.items():
        yield _folded(
            f"<b>{key}</b>: {suspect.says}",
            f"Ask {suspect.instrument}: *{suspect.look.format('…')}.* "
            f"More than {suspect.limit:,.10g} speaks for it, less against it.",
        )
    yield "## The diagnosis"
    yield _folded(
        "Only when you have one of your own",
        f"**{case.culprit}**: {case.suspects[case.culprit].says} A fix makes this at least "
        f"{case.par:g} times lower, with the same results: {case.cost_name}.",
    )
    yield _folded("How one would see it in production", f"{case.production}.")
    yield _folded("When it is something else", f"{case.not_when}.")


def _folded(summary: str, text: str) -> str:
    return f"<details><summary>{summary}</summary>\n\n{text}\n\n</details>"
