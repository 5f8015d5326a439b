"""The course as a learner sees it: JupyterLab, real keys and clicks, a real kernel.

All lessons are shown as nbval executed them, on one page; lesson 00 is also run by hand.
LABKIT_BROWSER=first opens lesson 00 alone, =none switches it off.
Pictures of what failed are kept in build/browser/.
"""

import os
import re
import time

from pytest import fixture, importorskip, mark, skip

from course import notebooks
from tests.browser import lab
from tests.course.samples import cell, lesson

WANTED = os.environ.get("LABKIT_BROWSER", "all")
MIME = "application/vnd.jupyter.widget-state+json"
LESSONS = sorted((lab.ROOT / "notebooks").glob("*.ipynb"))
pytestmark = [
    mark.timeout(500),
    mark.skipif(WANTED == "none", reason="switched off by LABKIT_BROWSER=none"),
    mark.skipif(lab.chromium() is None, reason="no Chromium here: apt-get install chromium"),
]

EXPLORER = """
from labkit.show import plots, widgets
def draw(n):
    ax = plots.new_axes(f"{n} ranks", x="n", y="t")
    plots.line(ax, [0, n], [0, n])
    plots.describe(ax, f"{n} ranks")
    return ax
widgets.explore(draw, title="Try", n=(2, 64, 1, 33))
"""
FOREVER = """
import time
from labkit import launch
def program():
    while True:
        time.sleep(0.1)
launch(program, world_size=2, timeout=300)
"""
AFTERWARDS = """
from labkit import launch
import torch.distributed as dist
print(launch(lambda: dist.get_rank(), world_size=3))
"""


@fixture(scope="module")
def browser():
    sync = importorskip("playwright.sync_api", reason="playwright is not installed")
    with sync.sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=lab.chromium(), args=lab.FLAGS)
        yield running
        running.close()


@fixture(scope="module")
def course(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lab")
    with lab.server(folder) as address:
        yield folder / "course", address


@fixture
def opened(browser, course, request):
    """Open a notebook by name or from cells; keep a picture when the test fails."""
    folder, address = course
    tabs = []
    page = browser.new_page(viewport={"width": 1200, "height": 1600})

    def open_(notebook, *, as_it_is=False):
        for before in tabs:
            before.close()
        stem = re.sub(r"[^a-z0-9]+", "_", request.node.name.lower())
        name = f"{stem}_{len(tabs)}.ipynb"  # a notebook opened again gets a new kernel
        written = notebook if as_it_is else notebooks.canonical(notebook)
        notebooks.write(written, folder / name)
        tabs.append(lab.Notebook(page, address, name))
        return tabs[-1]

    yield open_
    if getattr(request.node, "failed", False):
        lab.PICTURES.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=lab.PICTURES / f"{request.node.name}.png")
    for notebook in tabs[-1:]:  # none, if it could not be opened
        notebook.close()
    page.close()


def check_what_is_shown(notebook):
    assert notebook.unrendered_widgets() == 0
    assert notebook.pictures_without_words() == 0
    assert "Error displaying widget" not in notebook.text()


@mark.timed
def test_a_lesson_runs_with_a_live_kernel(opened, notebook_seconds):
    start = time.perf_counter()
    notebook = opened(notebooks.read(LESSONS[0]))
    notebook.run_all(timeout=400)
    notebook_seconds(f"{LESSONS[0].stem} in a browser", time.perf_counter() - start)
    check_what_is_shown(notebook)
    assert notebook.errors() == []


def test_a_slider_takes_the_keyboard_and_changes_the_picture(opened):
    notebook = opened(lesson(EXPLORER))
    notebook.run_all()
    assert notebook.unrendered_widgets() == 0
    picture = notebook.page.locator(".labkit-explorer img")
    before = picture.get_attribute("src")
    assert picture.get_attribute("alt") == "33 ranks"
    handle = notebook.page.locator(".labkit-explorer .noUi-handle")
    handle.focus()
    handle.press("ArrowRight")
    notebook.page.wait_for_selector('.labkit-explorer img[alt="34 ranks"]', timeout=20_000)
    assert picture.get_attribute("src") != before


def test_a_lesson_goes_on_without_a_prediction_and_words_are_refused(opened):
    ask = "from course.ledger import predict, reconcile\npredict('t.q', 'How long?', 'µs')"
    notebook = opened(lesson(ask, "1", "reconcile('t.q', 50.0, model=45.0)"))
    notebook.run_all()
    assert "No prediction was committed" in notebook.text()
    form = notebook.page.locator(".labkit-prediction")
    form.locator("input").fill("about ten")
    form.locator("button").click()
    form.get_by_text("is not a number").wait_for(timeout=20_000)


def test_a_prediction_is_committed_and_reconciled(opened):
    ask = "from course.ledger import predict, reconcile\npredict('t.r', 'How long?', 'µs')"
    notebook = opened(lesson(ask, "import time; time.sleep(0)"))
    notebook.run_all()
    form = notebook.page.locator(".labkit-prediction")
    form.locator("input").fill("25")
    form.locator("input").press("Tab")
    form.locator("button").press("Enter")
    form.get_by_text("Committed: 25 µs").wait_for(timeout=20_000)
    notebook.set_source("step-1", "reconcile('t.r', 50.0, model=45.0)")
    notebook.page.evaluate(f"{lab.NOTEBOOK}.content.activeCellIndex = 1")
    notebook.run_commands("run-cell")
    notebook.page.locator(".labkit-reconciled").wait_for(timeout=20_000)
    assert "2.0 times below" in notebook.text() and "45 µs" in notebook.text()


def test_a_failed_check_shows_its_message_without_a_traceback(opened):
    check = (
        "from course import checking\nwith checking.exercise('9.1', par='1 S'):\n"
        "    checking.at_most(7.0, 1.0, what='sent', unit='S', meaning='whole tensors?')"
    )
    notebook = opened(lesson(check))
    notebook.run_all()
    text = notebook.text()
    assert "exercise 9.1 is not right yet" in text and "whole tensors?" in text
    assert "Traceback" not in text and "checking.py" not in text


def solved_exercise():
    """An exercises notebook with the answer to its first exercise, or None."""
    for path in sorted((lab.ROOT / "exercises").glob("*.ipynb")):
        solution = notebooks.read(lab.ROOT / "solutions" / path.name)
        answers = {c.id: c.source for c in solution.cells if re.match(r"ex-\w+-1-answer", c.id)}
        if answers:
            return notebooks.read(path), answers
    return None


def test_solving_an_exercise_makes_its_check_pass(opened):
    found = solved_exercise()
    if found is None:
        skip("there are no exercises")
    notebook, answers = found
    tab = opened(notebook)
    for cell_id, source in answers.items():
        tab.set_source(cell_id, source)
    last = max(i for i, item in enumerate(notebook.cells) if re.match(r"ex-\w+-1-check", item.id))
    tab.page.evaluate(f"{lab.NOTEBOOK}.content.activeCellIndex = {last}")
    tab.run_commands("run-all-above", "run-cell")
    tab.wait_until_idle()
    assert "✔ Exercise" in tab.text()


def test_an_interrupted_launch_lets_the_learner_go_on(opened):
    notebook = opened(lesson(FOREVER))
    notebook.start_all()
    notebook.page.wait_for_timeout(4000)  # the ranks are up and running
    notebook.interrupt()
    notebook.wait_until_idle(60)
    assert [text for text in notebook.errors() if "KeyboardInterrupt" in text]
    notebook.set_source("step-0", AFTERWARDS)
    notebook.run_all()
    assert "[0, 1, 2]" in notebook.text()


def test_markdown_hints_fold(opened):
    hint = "<details><summary>Hint 1: a nudge</summary>\n\nLook *here*.\n\n</details>"
    notebook = lesson("1")
    notebook.cells.insert(0, cell("hint", hint, kind="markdown"))
    page = opened(notebook).page
    assert not page.get_by_text("Look here.").is_visible()
    page.locator("summary").click()
    assert page.get_by_text("Look here.").is_visible()
