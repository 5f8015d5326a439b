"""Small notebooks for the tests of the course's machinery."""

from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from course.notebooks import exercises

STATEMENT = """## Exercise 1.1: Double it

**Par:** one multiplication · **Time:** 5 min · **Difficulty:** ★★☆

Write `double`."""

ANSWER = '''def double(number):
    """Return twice the number."""
    ### BEGIN SOLUTION
    return 2 * number
    ### END SOLUTION'''

CHECK = "assert double(3) == 6\nprint('passed')"


def cell(cell_id, source, *, kind="code", **metadata):
    make = new_code_cell if kind == "code" else new_markdown_cell
    new = make(source, metadata=metadata)
    new["id"] = cell_id
    return new


def solutions(*, answer=ANSWER, check=CHECK):
    words = {"title": "# Exercises 1", "ex-1-1": STATEMENT}
    code = {"ex-1-1-answer": answer, "ex-1-1-check": check}
    texts = [cell(name, text, kind="markdown") for name, text in words.items()]
    return new_notebook(cells=texts + [cell(name, source) for name, source in code.items()])


def lesson(*sources):
    return new_notebook(cells=[cell(f"step-{i}", source) for i, source in enumerate(sources)])


def printed(notebook):
    """Solutions that were run once."""
    graded = exercises.with_grading(notebook)
    graded.cells[3].outputs = [new_output("stream", name="stdout", text="passed\n")]
    return graded
