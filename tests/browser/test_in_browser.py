"""The course as a learner sees it in JupyterLab: real keys and clicks, a real kernel."""

from pytest import mark

from course.notebooks import files
from tests.browser import lab
from tests.course.samples import cell, lesson

pytestmark = [
    mark.slow,
    mark.timeout(300),
    mark.skipif(lab.chromium() is None, reason="no Chromium here: apt-get install chromium"),
]
ASK = """
from course.predictions.ledger import choose, gate, mark, predict, reconcile
from labkit.show import plots, widgets

choose("9.cause", "Rank 2 waits 40 ms in each all_reduce. What is the cause?", [
    "rank 2 is slow", "another rank comes late, and rank 2 only waits for it",
    "the network between rank 2 and the switch loses packets and sends them again",
    "the bucket is too large"], why=True)
predict("9.slope", "How long does one call take?", "µs", low=True)
"""
SEE = """
gate("9.cause")
print("seen")
"""
SEE_SLOPE = """
gate("9.slope")
ax = plots.new_axes("One call", x="pairs", y="time", yunit="µs")
ax.plot([1, 8], [300, 1200])
mark(ax, "9.slope")
mark(ax, "9.cause")
plots.describe(ax, "It grows.")
ax
"""
RECONCILE = """
reconcile("9.slope", 1200.0, model=1000, tier="MEASURED")
reconcile("9.cause", "b", tier="RECORDED", because="without the late rank it waits 2 ms")
"""
EXPLORE = """
def draw(n):
    ax = plots.new_axes(f"{n} ranks", x="n", y="t")
    plots.line(ax, [0, n], [0, n])
    plots.describe(ax, f"{n} ranks")
    return ax
widgets.explore(draw, title="Try", n=(2, 64, 1, 33))
"""
HINT = "<details><summary>Hint 1: a nudge</summary>\n\nLook *here*.\n\n</details>"


def test_a_learner_votes_skips_predicts_and_meets_the_measurement(tmp_path):
    with lab.opened(tmp_path, height=2400, picture="votes") as (page, address):
        play(page, tmp_path / "course", address)


def stopped(notebook):
    return [error.partition(": Stopped: First commit")[0] for error in notebook.errors()]


def play(page, folder, address):
    made = lesson(ASK, SEE, SEE_SLOPE, RECONCILE, EXPLORE)
    made.cells.insert(0, cell("hint", HINT, kind="markdown"))
    files.write(files.canonical(made), folder / "votes.ipynb")
    notebook = lab.Notebook(page, address, "votes.ipynb")
    assert not page.get_by_text("Look here.").is_visible()
    page.locator("summary", has_text="nudge").click()
    assert page.get_by_text("Look here.").is_visible()

    notebook.run_all()
    assert stopped(notebook) == ["step-1"], "Run All ends at the first gate"
    assert "Traceback" not in notebook.text() and "seen" not in notebook.text()
    vote = page.locator(".course-question-form").first
    vote.get_by_role("radio").nth(1).press("Space")
    vote.get_by_label("because").fill("it only waits")
    vote.get_by_label("because").press("Enter")
    vote.get_by_text("committed: b)").wait_for(timeout=20_000)

    notebook.run_from(2)
    assert "seen" in notebook.text() and stopped(notebook) == ["step-2"]
    asked = page.locator(".course-question-form").nth(1)
    asked.get_by_label("I expect").fill("about a thousand")
    asked.get_by_label("I expect").press("Enter")
    asked.get_by_text("is not a number").wait_for(timeout=20_000)
    asked.get_by_label("I expect").fill("1,000")
    asked.get_by_label("at least").fill("500")
    asked.get_by_label("at most").fill("2000")
    asked.get_by_label("at most").press("Enter")
    asked.get_by_text("committed: 1,000 µs (500 to 2,000)").wait_for(timeout=20_000)

    notebook.run_from(3)
    assert notebook.errors() == []
    text = notebook.text()
    assert "Inside your range" in text and "Your vote stands" in text
    assert "you: 1,000 µs" in page.locator(".jp-OutputArea img").first.get_attribute("alt")

    handle = page.get_by_role("slider", name="n", exact=True)
    handle.focus()
    handle.press("ArrowRight")
    page.wait_for_selector(".labkit-stale")  # dimmed, until the picture is that of the slider
    page.wait_for_selector('.labkit-explorer:not(.labkit-stale) img[alt="34 ranks"]')
    cells = f"{lab.NOTEBOOK}.content.widgets.length"
    before = page.evaluate(cells)
    handle.press("b")
    assert page.evaluate(cells) == before, "letters are no commands of JupyterLab's"
    handle.press("Shift+Enter")
    notebook.wait_until_idle()
    assert page.evaluate(cells) == before + 1, "it ran the last cell, and there is a new one"
