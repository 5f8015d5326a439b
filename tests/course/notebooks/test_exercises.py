import json
import re

from nbformat.v4 import new_notebook
from pytest import mark, raises

from course.catalogue import ROOT
from course.notebooks import exercises
from tests.course.samples import ANSWER, cell, solutions

CELLS = solutions().cells
REGION = "### BEGIN SOLUTION\nb = 2\n### END SOLUTION"
OPEN = 'raise NotImplementedError("exercise 1.1: not attempted yet")'


STUBS = {
    ANSWER: f'def double(number):\n    """Return twice the number."""\n    {OPEN}',
    f"a = ...\n{REGION}\nc = 3": "a = ...\n# exercise 1.1: your answer\nc = 3",
    f"  {REGION}\nc\n  {REGION}": f"  {OPEN}\nc\n  {OPEN}",
}


def test_each_region_goes_and_what_stands_around_it_is_given():
    """Where a cell has an answer of its own, `a = ...`, only the check fails."""
    assert {source: exercises.stub(source, number="1.1") for source in STUBS} == STUBS


def test_markers_that_do_not_pair_are_refused():
    remark = "a = 1  ### BEGIN SOLUTION, as a remark\n### END SOLUTION"
    for source in ("### BEGIN SOLUTION\n1", "### END SOLUTION\n### BEGIN SOLUTION", remark):
        with raises(ValueError, match=r"exercise 1\.1: .* do not pair"):
            exercises.derive(solutions(answer=source))


def test_a_solution_outside_an_answer_cell_is_refused():
    with raises(ValueError, match="'ex-1-1-check' has a solution region"):
        exercises.derive(solutions(check=ANSWER))


def test_grading_metadata_comes_from_ids_and_stars():
    graded = exercises.with_grading(solutions())
    answer, check = (item.metadata["nbgrader"] for item in graded.cells[2:])
    assert answer["solution"] and not answer["grade"] and answer["grade_id"] == "ex-1-1-answer"
    assert (check["grade"], check["locked"], check["points"]) == (True, True, 2)


def test_a_missing_check_a_wrong_number_and_a_bad_id_are_named():
    def problem(cells, lesson="1"):
        (complaint,) = exercises.problems(new_notebook(cells=cells), lesson=lesson)
        return complaint

    assert "has statement, answer" in problem(CELLS[:3])
    assert "must be 2.1" in problem(CELLS, "2")
    ids = "ids are 'ex-1-1', 'ex-1-1-answer', 'ex-1-1-check'"
    assert ids in problem([*CELLS, cell("ex-one", "1")])


def test_the_readme_counts_the_exercises_of_each_lesson():
    rows = re.findall(r"\[(\d+)\]\((exercises/\S+\.ipynb)\)", (ROOT / "README.md").read_text())
    assert len(rows) == len(list((ROOT / "exercises").glob("*.ipynb")))
    assert all(int(count) == len(exercises.numbers(ROOT / path)) for count, path in rows)


@mark.parametrize("path", sorted((ROOT / "solutions").glob("*.ipynb")), ids=lambda path: path.stem)
def test_each_statement_names_the_par_that_its_check_names(path):
    """Solutions keep what their checks print, and nbval holds that against the checks."""
    cells = json.loads(path.read_text())["cells"]
    printed = "".join("".join(o.get("text", "")) for c in cells for o in c.get("outputs", ()))
    pars = re.findall(r"Exercise (\S+) passed: .*?par is (.*)\.$", printed, flags=re.M)
    texts = "\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "markdown")
    sections = dict(re.findall(r"^## Exercise (\S+?):(.*?)(?=^## |\Z)", texts, flags=re.M | re.S))
    assert {number for number, _ in pars} == set(sections)
    for number, par in pars:
        assert f"{par} ·" in sections[number], f"exercise {number}: its check says: {par}"
