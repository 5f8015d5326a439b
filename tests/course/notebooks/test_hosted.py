"""Badges and the first cell: from one setting, written by `course sync`, held by `course check`."""

import subprocess
import sys

from nbformat.v4 import new_notebook
from pytest import raises

from course.notebooks import files, hosted, tree
from tests.course.samples import cell

ADDRESS = "https://github.com/somebody/why-slow"


def publish(course, address):
    urls = f'[project.urls]\nRepository = "{address}"\n' if address else ""
    (course / "pyproject.toml").write_text(f'[project]\nname = "x"\nversion = "2.3.4"\n{urls}')


def texts(course):
    lesson = files.read(course / "notebooks/01_sample.ipynb")
    return (course / "README.md").read_text(), {item.id: item.source for item in lesson.cells}


def test_badges_come_and_go_with_the_address(course):
    before = texts(course)
    assert "badge" not in before[0].replace("badges -->", "") and hosted.BADGES not in before[1]
    assert "no address" in before[1][hosted.CELL]

    publish(course, f"{ADDRESS}.git")
    complaints = "\n".join(tree.problems(course))
    outdated = [path.name for path in tree.sync(course)]
    assert sorted(outdated) == ["01_exercises.ipynb", "01_sample.ipynb", "README.md"]
    assert all(f"{name}: not up to date" in complaints for name in outdated)
    assert tree.sync(course) == [] and list(tree.problems(course)) == []
    readme, cells = texts(course)
    colab = "colab.research.google.com/github/somebody/why-slow/blob/HEAD/notebooks"
    for text, path in ((readme, "00_start_here"), (cells[hosted.BADGES], "01_sample")):
        assert f"{colab}/{path}" in text
        assert f"v2/gh/somebody/why-slow/HEAD?urlpath=lab%2Ftree%2Fnotebooks%2F{path}" in text
        assert "codespaces.new/somebody/why-slow" in text
    assert f"@ git+{ADDRESS}" in cells[hosted.CELL]

    publish(course, "")
    tree.sync(course)
    assert texts(course) == before


def test_the_first_cell_is_folded_stands_before_all_code():
    cells = [cell("title", "# 01", kind="markdown"), cell("sum", "print(2)")]
    notebook = new_notebook(cells=cells)
    shown = files.canonical(hosted.fronted(notebook, ADDRESS, "notebooks/01_x.ipynb"))
    assert [item.id for item in shown.cells] == ["title", hosted.BADGES, hosted.CELL, "sum"]
    assert shown.cells[2].metadata["jupyter"]["source_hidden"] is True
    assert files.canonical(shown) == shown


def test_what_is_no_address_is_refused(course):
    for wrong in ('https://x.org/\\"; import os', "git@github.com:a/b", "https://a b"):
        publish(course, wrong)
        with raises(ValueError, match="no address"):
            tree.derived(course)


def fronted(address):
    return hosted.fronted(new_notebook(cells=[cell("a", "1")]), address, "x.ipynb").cells


def test_elsewhere_than_on_github_there_are_no_badges_but_an_address_to_install_from():
    assert hosted.badges("https://gitlab.com/a/b") == ""
    assert [item.id for item in fronted("https://gitlab.com/a/b")] == [hosted.CELL, "a"]


def test_without_labkit_and_address_one_line_says_what_is_missing():
    alone = [sys.executable, "-I", "-S", "-c", fronted("")[0].source]
    done = subprocess.run(alone, capture_output=True, text=True, cwd="/")
    assert done.returncode == 0 and done.stdout.count("\n") == 1
    assert "no address to install it from" in done.stdout
