r"""What an exercise is: its cells, its markers, and the stub that the learner gets.

`solutions/NN_solutions.ipynb` is the only source. In it, exercise M of lesson N is these cells, in
this order, known by their ids (other cells may stand between them; `05b` holds `ex-5b-1`):

- `ex-N-M`, markdown, the statement: the heading `## Exercise N.M: Its title`; the line
  `**Par:** at most ... · **Time:** 15 min · **Difficulty:** ★★☆`; what to do, and why it is worth
  doing; then up to three hints, `<details><summary>Hint 1: a nudge</summary>` and a blank line
  each: `Hint 2: the invariant` (what stays true in every correct answer), `Hint 3: a partial
  answer`. A short form (predict, read, debug) may do without.
- `ex-N-M-answer`, code: a stub with its signature and docstring, and the answer between
  `### BEGIN SOLUTION` and `### END SOLUTION` (nbgrader's markers; one region or more, never
  nested). What stands outside is given to the learner. More answer cells: `ex-N-M-answer-two`.
- `ex-N-M-check`, code: calls the `check_*` function. Further ones: `ex-N-M-check-speed`.

In `exercises/` a region becomes `raise NotImplementedError("exercise N.M: not attempted yet")` at
the indent of its opening marker. A region that is not indented becomes a remark, so that only the
check fails. The number of stars (one to three) is the number of points in nbgrader's metadata,
which `course sync` writes. In `solutions/` check cells keep what they printed, and nbval compares
it; `course sync --outputs` runs them.
"""

import copy
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import nbformat
from nbformat import NotebookNode

from course.notebooks import files

BEGIN = "### BEGIN SOLUTION"
END = "### END SOLUTION"
_REGION = re.compile(rf"^( *){BEGIN}$.*?^ *{END}$", re.DOTALL | re.MULTILINE)

_ID = re.compile(r"ex-(\d+[a-z]?)-(\d+)(?:-(answer|check)(?:-[a-z0-9-]+)?)?")
_BESIDE = re.compile(r"ex-\d+[a-z]?-\d+-[a-z0-9-]+")
_BUDGET = re.compile(
    r"\*\*Par:\*\* \S.* · \*\*Time:\*\* \d+ min · \*\*Difficulty:\*\* (★{1,3})☆{0,2}"
)


class Part(NamedTuple):
    """One cell's place in an exercise."""

    number: str  # the exercise's, like `1.2` or `5b.1`
    role: str  # `statement`, `answer` or `check`


def part_of(cell: NotebookNode) -> Part | None:
    """Read a cell's place in an exercise from its id; None for a cell that belongs to none."""
    match = _ID.fullmatch(cell.get("id", ""))
    return match and Part(f"{match[1]}.{match[2]}", match[3] or "statement")


def numbers(path: Path) -> tuple[str, ...]:
    """Return the numbers of the exercises in a notebook file."""
    parts = filter(None, map(part_of, files.read(path).cells))
    return tuple(part.number for part in parts if part.role == "statement")


def stub(source: str, *, number: str) -> str:
    r"""Take the answers out of a cell's source; its markers have to pair.

    Example:
        >>> answer = "def f():\n    ### BEGIN SOLUTION\n    return 1\n    ### END SOLUTION"
        >>> print(stub(answer, number="1.1"))
        def f():
            raise NotImplementedError("exercise 1.1: not attempted yet")
    """

    def instead(region: re.Match[str]) -> str:
        if not region[1]:
            return f"# exercise {number}: your answer"
        return f'{region[1]}raise NotImplementedError("exercise {number}: not attempted yet")'

    given, regions = _REGION.subn(instead, source)
    if not regions == source.count(BEGIN) == source.count(END):
        raise ValueError(f"exercise {number}: {BEGIN} and {END} do not pair, or are nested")
    return given


def derive(solutions: NotebookNode) -> NotebookNode:
    """Make the learner's notebook from a solutions notebook: stubs for answers.

    Raises `ValueError` where a cell's markers do not pair, or stand in one that is no answer.
    """
    notebook = copy.deepcopy(solutions)
    for cell in notebook.cells:
        if files.COMPARED in cell.metadata.get("tags", []):
            cell.metadata.tags.remove(files.COMPARED)
        if cell.cell_type != "code" or (BEGIN not in cell.source and END not in cell.source):
            continue
        part = part_of(cell)
        if part is None or part.role != "answer":
            where = f"cell {cell.get('id')!r} has a solution region"
            raise ValueError(f"{where}; only cells named like 'ex-1-1-answer' may")
        cell.source = stub(cell.source, number=part.number)
    return notebook


def with_grading(notebook: NotebookNode) -> NotebookNode:
    """Return the notebook with nbgrader's metadata and nbval's mark, from the cells' ids."""
    notebook = copy.deepcopy(notebook)
    points = {
        part.number: len(match[1])
        for cell in notebook.cells
        if (part := part_of(cell)) and (match := _BUDGET.search(cell.source))
    }
    for cell in notebook.cells:
        part = part_of(cell)
        cell.metadata.pop("nbgrader", None)
        if part is None or part.role == "statement" or cell.cell_type != "code":
            continue
        graded = part.role == "check"
        marks = {"grade": graded, "locked": graded, "solution": not graded, "task": False}
        marks |= {"grade_id": cell.id, "schema_version": 3}
        if graded:
            marks["points"] = points.get(part.number, 1)
            cell.metadata["tags"] = sorted({*cell.metadata.get("tags", []), files.COMPARED})
        cell.metadata["nbgrader"] = nbformat.from_dict(marks)
    return notebook


def problems(solutions: NotebookNode, *, lesson: str) -> Iterator[str]:
    """Name cells of a solutions notebook that are not where the convention above has them.

    `lesson` is what its exercises' numbers start with: `1` for `01_...`, `5b` for `05b_...`.
    """
    parts: dict[str, list[str]] = {}
    for cell in solutions.cells:
        if part := part_of(cell):
            parts.setdefault(part.number, []).append(part.role)
            for number in _judged_in(cell) - {part.number}:
                yield f"cell {cell.id!r} judges exercise {number}: give its check {part.number}"
        elif cell.get("id", "").startswith("ex-") and not _BESIDE.fullmatch(cell.id):
            yield f"cell {cell.id!r}: exercise ids are 'ex-1-1', 'ex-1-1-answer', 'ex-1-1-check'"
    if not parts:
        yield "no exercise found: a statement's cell id is like 'ex-1-1'"
    if list(parts) != [f"{lesson}.{place}" for place in range(1, len(parts) + 1)]:
        yield f"exercises are {', '.join(parts)}; they must be {lesson}.1, {lesson}.2, ... in order"
    for number, roles in parts.items():
        if list(dict.fromkeys(roles)) != ["statement", "answer", "check"]:
            needs = "needs a statement, then its answer, then its check"
            yield f"exercise {number}: {needs}; has {', '.join(roles)}"


def _judged_in(cell: NotebookNode) -> set[str]:
    """Return the exercises that passed in a cell, by the output that is kept of it."""
    outputs = cell.get("outputs", [])
    kept = "".join(output.get("text", "") for output in outputs if output.output_type == "stream")
    return set(re.findall(r"Exercise (\w+\.\d+) passed", kept))
