"""Every notebook keeps to the spine, and gives nothing away as it is written."""

import re
from pathlib import Path

import nbformat
from pytest import mark

from course.commands import start
from course.notebooks import files, hosted, tree
from tests import spine

ROOT = Path(__file__).resolve().parents[1]
EXERCISES = sorted((ROOT / "exercises").glob("*.ipynb"))
LESSONS = [path for path in tree.kept(ROOT) if path.parent.name != tree.SOLUTIONS]


def test_notebooks_are_canonical_and_exercises_follow_from_solutions():
    assert list(tree.problems(ROOT)) == []


@mark.parametrize("name", [str(path.relative_to(ROOT)) for path in LESSONS])
def test_nothing_is_seen_before_it_is_asked(name):
    """In the notebook itself, with its first cells as a hosted copy has them."""
    notebook = files.read(ROOT / name)
    for copy in (notebook, hosted.fronted(notebook, "https://github.com/a/b", name)):
        found = [*spine.order(copy), *spine.given_away(copy), *spine.verdicts_in_sight(copy)]
        assert found == []


CORES = [path for path in LESSONS if path.name[0] == "0" and path.parent.name == tree.LESSONS]


@mark.parametrize("path", CORES, ids=lambda path: path.name.partition("_")[0])
def test_the_learners_run_speaks_and_ours_is_folded(path):
    notebook = files.read(path)
    assert [*spine.ours_in_sight(notebook)] == []
    assert spine.figures_among(notebook) <= 4.0, "figures in 100 words outside folds"


@mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_going_back_one_cell_does_not_break_what_follows(path):
    assert [*spine.bound_twice(files.read(path))] == []


def test_what_is_ours_or_bound_twice_would_be_seen():
    from tests.course.samples import cell

    fold = "<details><summary>Our run</summary>We measured 4.</details>"
    told = f"In our recorded run it was 3.\n\n{fold}\n\nOn this machine of ours it took 3 s."
    notebook = nbformat.v4.new_notebook(cells=[cell("a", told, kind="markdown")])
    assert [*spine.ours_in_sight(notebook)] == ["a: 'In our recorded run'", "a: 'machine of ours'"]
    assert spine.figures_among(notebook) == 2
    sources = "slow = 1", "def slow(): return [fast for fast in (slow, 2)]", "fast = 3", "slow()"
    cells = [cell(f"cell-{i}", source) for i, source in enumerate(sources)]
    found = [*spine.bound_twice(nbformat.v4.new_notebook(cells=cells))]
    assert found == ["cell-3 takes 'slow', which cell-0 and cell-1 bind"]
    assert [*spine.bound_twice(nbformat.v4.new_notebook(cells=cells[1:]))] == []


def test_copies_in_work_hold_no_outputs_and_no_dead_links(tmp_path):
    start.refresh(ROOT, tmp_path)
    copies = [path for path in tmp_path.rglob("*.ipynb") if path.parent.name != "solutions"]
    assert len(copies) >= len(LESSONS) + len(EXERCISES)
    for path in copies:
        cells = files.read(path).cells
        assert not any(cell.get("outputs") for cell in cells), path.name
        text = "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
        for link in re.findall(r"\]\((?!https?:|#)([^)#]+)", text):
            assert (path.parent / link).exists(), f"{path.name} links {link}"


def test_what_is_given_away_would_be_seen():
    from tests.course.samples import cell

    def walk(*cells, **results):
        found = nbformat.v4.new_notebook(cells=cells)
        return [*spine.order(found), *spine.given_away(found, results)]

    ask = cell("ask", 'predict("9.a", "How many?", "times")')
    vote = cell("vote", 'choose("9.b", "Why?", ["the late rank", "the bytes"])')
    run = cell("run", 'gate("9.a")\nprint(1)')
    end = cell("end", 'reconcile("9.a", 6.554, tier="PUBLISHED")')
    both = cell("both", 'gate("9.b")\nreconcile("9.b", "b", tier="MEASURED")')
    assert walk(ask, run, end) == walk(vote, both) == []
    assert "never reconciled" in walk(ask, run)[0]
    assert "ask it, then gate" in walk(run, ask, end)[0]
    late = cell("run", 'print(1)\ngate("9.a")')
    assert "first line" in walk(ask, late, end)[0]
    spoilt = cell("title", "# Why 6.55 times?", kind="markdown")
    assert "'6.55 times'" in walk(spoilt, ask, run, end)[0]
    drawn = cell("drawn", 'draw(title="It is the bytes")')
    assert "the bytes" in walk(vote, drawn, both)[0]
    for told, seen in ("It is the bytes", ["'the bytes'"]), ("When you have run it", []):
        text = f"<details><summary>{told}</summary>\n\nIt is the bytes.\n\n</details>"
        found = walk(vote, cell("fold", text, kind="markdown"), both)
        assert [words.partition("says ")[2] for words in found] == seen
    folded = nbformat.v4.new_notebook(cells=[both])
    assert "9.b: fold both" in next(spine.verdicts_in_sight(folded))
    both.metadata["tags"] = [hosted.FOLDED]
    assert [*spine.verdicts_in_sight(folded)] == []
    both.source = both.source.partition("\n")[2]
    told = "9.b: both says what is right in its first line, which a fold shows"
    assert [*spine.verdicts_in_sight(folded)] == [told]
    computed = cell("end", 'reconcile("9.a", f(), tier="MEASURED")')
    assert walk(spoilt, ask, run, computed) == []
    assert walk(spoilt, ask, run, computed, **{"9.a": 6.551})
    run.outputs = [nbformat.v4.new_output("stream", text="6.55")]
    assert "stored output" in walk(ask, run, end)[0]
