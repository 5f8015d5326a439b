import types
from dataclasses import replace

from PIL import Image
from pytest import mark, raises

from course import catalogue
from course.commands import pictures
from course.commands import record as recorder
from course.notebooks import files, tree
from labkit.measure import records
from labkit.measure.records import Provenance, Record, Tier
from tests.course.samples import ANSWER, solutions


def test_a_check_whose_output_nobody_kept_is_told(course):
    path = course / "solutions/01_solutions.ipynb"
    files.write(solutions(), path)
    tree.sync(course)
    assert tree.without_outputs(course) == [path]
    assert "ex-1-1-check keeps no output" in next(tree.problems(course))


def test_only_a_check_of_solutions_is_compared(course):
    kept = files.read(course / "solutions/01_solutions.ipynb").cells[3]
    assert (kept.outputs[0].text, kept.execution_count) == ("passed\n", 1)
    assert files.COMPARED in kept.metadata.tags
    for derived in files.read(course / "exercises/01_exercises.ipynb").cells:
        assert not derived.get("outputs")
        assert files.COMPARED not in derived.metadata.get("tags", [])


@mark.parametrize(
    ("path", "change", "says"),
    [  # an edited exercise, a lesson that a person saved, an exercise without solutions
        ("exercises/01_exercises.ipynb", ("exercise 1.1", "exercise 9.9"), "not up to date"),
        ("notebooks/01_sample.ipynb", ('data": {}', 'data": {"scrolled": true}'), "not up to date"),
        ("exercises/02_orphan.ipynb", None, "has no solutions notebook"),
    ],
)
def test_what_does_not_follow_is_told_and_mended(course, path, change, says):
    path = course / path
    assert list(tree.problems(course)) == tree.sync(course) == []
    before = path.read_text() if change else ""
    path.write_text(before.replace(*change, 1) if change else "{}")
    assert f"{path.name}: {says}" in next(tree.problems(course))
    tree.sync(course)
    assert list(tree.problems(course)) == []
    assert (path.read_text() if path.exists() else "") == before


def test_a_question_whose_cell_is_gone_is_told(course):
    (course / "docs").mkdir()
    cell_id = files.read(course / "notebooks/01_sample.ipynb").cells[0].id
    (course / "docs/questions.md").write_text(f"`01#{cell_id}`, `01#gone`, `01d#gone`")
    gone = [problem for problem in tree.problems(course) if "questions" in problem]
    assert gone == [f"docs/questions.md: there is no cell `{name}#gone`" for name in ("01", "01d")]


def test_a_lesson_without_a_row_on_a_page_is_told(course):
    (course / "INSTRUCTORS.md").write_text("| 02 | 40 | `run` |\n")
    (problem,) = tree.problems(course)
    assert problem == "INSTRUCTORS.md: its table of lessons has no row that begins with '| 01 |'"


def test_a_cell_that_hides_its_picture_is_told(course):
    path = course / "notebooks/01_sample.ipynb"
    notebook = files.read(path)
    notebook.cells[-1].source = "draw();"
    files.write(notebook, path)
    assert "ends in ';', which hides the picture" in next(tree.problems(course))


def test_a_check_that_judges_another_exercise_is_told(course):
    path = course / "solutions/01_solutions.ipynb"
    notebook = files.read(path)
    notebook.cells[3].outputs[0].text = "✔ Exercise 1.1 passed: par is b.\n"
    files.write(notebook, path)
    assert list(tree.problems(course)) == []
    notebook.cells[3].outputs[0].text = "✔ Exercise 3.2 passed: par is b.\n"
    files.write(notebook, path)
    assert "'ex-1-1-check' judges exercise 3.2: give its check 1.1" in next(tree.problems(course))


def test_unclosed_markers_are_told_with_file_and_exercise(course):
    path = course / "solutions/01_solutions.ipynb"
    broken = ANSWER.replace("### END SOLUTION", "")
    files.write(solutions(answer=broken), path)
    assert any("01_solutions.ipynb: exercise 1.1: ###" in p for p in tree.problems(course))
    with raises(ValueError, match=r"01_solutions\.ipynb: exercise 1\.1: ### BEGIN"):
        tree.sync(course)


RECORDED = [name for name, lesson in catalogue.experiments().items() if lesson.recording.exists()]


@mark.parametrize("name", RECORDED)
def test_a_page_shows_each_recorded_run(name):
    assert f"(pictures/{name}.png)" in (catalogue.ROOT / "docs/pictures.md").read_text()
    with Image.open(pictures.FOLDER / f"{name}.png") as picture:
        assert picture.text["Software"] == "labkit"
        assert len(picture.text["Description"]) > 40


@mark.slow
def test_pictures_are_drawn_from_the_records(tmp_path, monkeypatch):
    """Those whose lessons have no test that draws their recording."""
    chosen = {name: catalogue.experiment(name) for name in ("passport", "p2p-topology")}
    monkeypatch.setattr(catalogue, "experiments", lambda: chosen)
    drawn = list(pictures.draw(tmp_path))
    assert [path.stem for path in drawn] == list(chosen)
    assert all(path.stat().st_size > 10_000 for path in drawn)


CALM = Record("demo", "a", {}, [[1.0]], Tier.MEASURED, Provenance.here(), others=0.04)


def experiment(path, *own):
    make = {"run": lambda *, quick, progress: list(own)}
    make["guilty"] = lambda *, progress, only: [replace(CALM, case=f"world {only}")] if only else []
    lesson = types.SimpleNamespace(experiment="demo", recording=path, **make)
    lesson.module = lesson
    return lesson


def others_by_case(path):
    return {record.case: record.others for record in records.load(path)}


def test_a_recording_replaces_the_one_before(tmp_path):
    path = tmp_path / "recording.json"
    records.save([replace(CALM, case="old")], path)
    recorder.record(experiment(path, CALM))
    assert others_by_case(path) == {"a": 0.04}


def test_one_world_is_recorded_anew_and_the_others_stay(tmp_path):
    path = tmp_path / "recording.json"
    records.save([replace(CALM, case="world a", others=0.01), replace(CALM, case="own")], path)
    recorder.record(experiment(path, replace(CALM, case="own")), only="a")
    assert others_by_case(path) == {"own": 0.04, "world a": 0.04}
    recorder.record(experiment(path, replace(CALM, case="own", others=0.02)), only=recorder.OWN)
    assert others_by_case(path) == {"world a": 0.04, "own": 0.02}


def test_what_was_disturbed_unwatched_or_not_run_is_not_recorded(tmp_path):
    path, fine = tmp_path / "recording.json", replace(CALM, case="fine")
    for says, change in (
        (r"a: other programs used 0\.80 CPUs", {"others": 0.8}),
        ("a: nobody watched", {"others": None}),
        ("a: could not run here", {"tier": Tier.RECORDED}),
    ):
        with raises(RuntimeError, match=says):
            recorder.record(experiment(path, fine, replace(CALM, **change)))
    assert not path.exists()
