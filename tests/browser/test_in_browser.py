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


WARM_UP = """
from course.predictions.ledger import gate, predict, reconcile, warmup
warmup("00.stopwatch")
"""
SKIP = """
gate("9.guess")
print("shown all the same")
reconcile("9.guess", 7.0, tier="MEASURED")
"""


def press(page, button):
    """Go on by the tabulator until the button has the focus, and press it."""
    for _ in range(12):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.textContent").strip() == button:
            page.keyboard.press("Space")
            return
    raise AssertionError(f"the tabulator does not reach {button!r}")


@mark.exhaustive
def test_the_keyboard_alone_answers_a_warm_up_and_skips_a_prediction(tmp_path):
    with lab.opened(tmp_path, height=1400, picture="keyboard") as (page, address):
        made = lesson(WARM_UP, 'predict("9.guess", "How many calls?", "calls")', SKIP)
        files.write(files.canonical(made), tmp_path / "course" / "keys.ipynb")
        notebook = lab.Notebook(page, address, "keys.ipynb")
        notebook.run_all()
        page.locator(".course-quiz-form").get_by_role("radio").first.focus()
        page.keyboard.press("Space")
        press(page, "Answer")
        on_the_next = f"{lab.NOTEBOOK}.content.activeCellIndex === 1"
        page.wait_for_function(on_the_next, timeout=20_000)
        gated = page.locator(".course-question-form").last
        gated.get_by_label("I expect").focus()
        press(page, "Skip this question")
        gated.get_by_text("Skipped.").wait_for(timeout=20_000)
        notebook.run_from(2)
        text = notebook.text()
        assert notebook.errors() == [] and "shown all the same" in text
        assert "You skipped this one." in text


TWICE = """
choose("9.cause", "What is the cause?", ["the queue", "the network", "a late rank"], why=True)
"""


@mark.exhaustive
def test_keys_are_the_forms_two_forms_say_the_same_and_what_slept_says_so(tmp_path):
    with lab.opened(tmp_path, height=1400, picture="keys") as (page, address):
        made = lesson(
            "from course.predictions.ledger import choose, gate",
            TWICE,
            'gate("9.cause")\n7 * 6',
            EXPLORE.replace("\ndef draw", "\nfrom labkit.show import plots, widgets\ndef draw", 1),
        )
        files.write(files.canonical(made), tmp_path / "course" / "two.ipynb")
        notebook = lab.Notebook(page, address, "two.ipynb")
        notebook.run_all()
        first, second = (page.locator(".course-question-form").nth(i) for i in (0, 1))
        radios = first.get_by_role("radio")
        radios.nth(0).focus()
        page.keyboard.press("Space")
        page.keyboard.press("ArrowDown")
        page.keyboard.press("ArrowDown")
        assert radios.nth(2).is_checked(), "arrows choose"
        cells = f"{lab.NOTEBOOK}.content.widgets.length"
        before = page.evaluate(cells)
        for letter in "abmy":
            page.keyboard.press(letter)
        assert page.evaluate(cells) == before, "letters are no commands of JupyterLab's"
        page.keyboard.press("Enter")
        first.get_by_text("committed: c)").wait_for(timeout=20_000)
        assert page.evaluate("document.activeElement.matches('.jp-Cell.jp-mod-active')")
        assert second.get_by_text("committed: c)").is_visible(), "one truth"
        assert second.get_by_role("radio").nth(2).is_checked()

        second.get_by_role("radio").nth(1).check()
        second.get_by_role("button", name="Commit").click()
        first.get_by_text("committed: b)").wait_for(timeout=20_000)
        page.keyboard.press("Shift+Enter")  # as the form says: run this cell again
        notebook.wait_until_idle()
        assert "42" in notebook.text() and notebook.errors() == []
        assert first.get_by_role("radio").first.is_disabled(), "its gate has been passed"

        notebook.run_from(3)
        handle = page.get_by_role("slider", name="n", exact=True)
        before = page.evaluate(f"{lab.NOTEBOOK}.content.activeCellIndex")
        handle.focus()
        handle.press("ArrowUp")
        page.wait_for_selector('.labkit-explorer img[alt="34 ranks"]', timeout=20_000)
        assert page.evaluate(f"{lab.NOTEBOOK}.content.activeCellIndex") in (before, 3)

        asleep = page.locator(".labkit-asleep")
        assert asleep.count() == 2 and not any(one.is_visible() for one in asleep.all())
        lab.photograph(page, "awake")
        page.set_viewport_size({"width": 390, "height": 1400})
        page.wait_for_timeout(500)
        for form in page.locator(".course-form").all():
            box = form.bounding_box()
            assert box["x"] + box["width"] <= 390, "a form fits a narrow screen"
        picture = page.locator(".labkit-explorer .labkit-picture")
        drawn = float(picture.get_attribute("width"))
        assert picture.bounding_box()["width"] >= 0.7 * drawn, "its letters are legible"
        box = page.locator(".labkit-explorer figure").bounding_box()
        assert box["x"] + box["width"] <= 390, "and it scrolls in its place"
        lab.photograph(page, "narrow")
        page.set_viewport_size({"width": 1200, "height": 1400})
        page.evaluate("window.jupyterapp.commands.execute('docmanager:save')")
        page.wait_for_timeout(1500)
        page.evaluate(f"{lab.SESSION}.shutdown()")
        page.wait_for_timeout(1000)
        lab.Notebook(page, address, "two.ipynb")
        asleep.first.wait_for(timeout=20_000)
        page.wait_for_timeout(1000)
        assert all(one.is_visible() for one in asleep.all()) and asleep.count() == 2
        assert not page.get_by_text("model not found").first.is_visible()
        lab.photograph(page, "asleep")
