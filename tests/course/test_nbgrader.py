"""The solutions notebooks are nbgrader assignments as they are: shown with nbgrader itself.

nbgrader is in requirements-dev.txt; without it this is skipped.
"""

import os
import subprocess
import sys
from importlib import util
from pathlib import Path

from pytest import fixture, mark

from course import exercises, notebooks
from tests.course.samples import solutions

ROOT = Path(__file__).resolve().parents[2]
pytestmark = [
    mark.timeout(300),
    mark.skipif(util.find_spec("nbgrader") is None, reason="pip install -r requirements-dev.txt"),
]

ANSWER = '''import torch
import torch.distributed as dist
from course import checking

def total(data):
    """Return the sum of every rank's data."""
    ### BEGIN SOLUTION
    dist.all_reduce(data)
    return data
    ### END SOLUTION'''
CHECK = """def program():
    return total(checking.rank_data(5, rank=dist.get_rank()))

with checking.exercise("1.1", par="one call"):
    for got in checking.on_ranks(program, world_size=2):
        expected = checking.sum_over_ranks(5, world_size=2)
        checking.same_values(got, expected, what="sum", meaning="-")"""


def assignment(answer=ANSWER):
    notebook = exercises.with_grading(solutions(answer=answer, check=CHECK))
    return notebooks.canonical(notebook)


def nbgrader(course, *arguments):
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    bin_first = [str(Path(sys.executable).parent), os.environ["PATH"]]
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(paths),
        "PATH": os.pathsep.join(bin_first),
        "JUPYTER_PREFER_ENV_PATH": "1",
        "LABKIT_LEDGER": str(course / "ledger.json"),
    }
    command = [sys.executable, "-m", "nbgrader", *arguments]
    done = subprocess.run(command, cwd=course, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@fixture
def course(tmp_path):
    (tmp_path / "nbgrader_config.py").write_text(
        "c = get_config()\nc.CourseDirectory.course_id = 'a'"
    )
    notebooks.write(assignment(), tmp_path / "source/lesson/01.ipynb")
    return tmp_path


def test_generate_and_autograde_two_ranks(course):
    nbgrader(course, "generate_assignment", "lesson")
    released = notebooks.read(course / "release/lesson/01.ipynb")
    answer = next(cell for cell in released.cells if cell.id == "ex-1-1-answer")
    assert "NotImplementedError" in answer.source and "all_reduce" not in answer.source

    wrong = assignment(ANSWER.replace("dist.all_reduce(data)", "pass"))
    for student, notebook in {"right": assignment(), "wrong": wrong, "lazy": released}.items():
        notebooks.write(notebook, course / f"submitted/{student}/lesson/01.ipynb")
    nbgrader(course, "autograde", "lesson")

    from nbgrader.api import Gradebook

    with Gradebook(f"sqlite:///{course / 'gradebook.db'}") as book:
        scores = {s: book.find_submission("lesson", s).score for s in ("right", "wrong", "lazy")}
        most = book.find_submission("lesson", "right").max_score
    assert most == 2, "two stars are two points"
    assert scores == {"right": 2, "wrong": 0, "lazy": 0}
