"""What is typed is what is kept, also while the kernel computes."""

from pytest import mark

from course.notebooks import files
from course.predictions import ledger_file
from tests.browser import lab
from tests.course.samples import lesson

pytestmark = [
    mark.slow,
    mark.timeout(400),
    mark.skipif(lab.chromium() is None, reason="no Chromium here: apt-get install chromium"),
]
ASK = """
from course.predictions.ledger import choose, gate, predict

predict("9.call", "How long does one call take?", "µs", low=True)
choose("9.why", "What takes so long?", ["the queue", "the network"], why=True)
"""
BUSY = "import time; time.sleep(4)"
REASON = "two of them wait for a CPU, and the third does not"


def type_all(page):
    """Type as a person does who is in a hurry, with a slip that is mended at once."""
    asked, vote = (page.locator(".course-question-form").nth(place) for place in (0, 1))
    asked.get_by_label("I expect").click()
    page.keyboard.type("1240", delay=40)
    page.keyboard.press("Backspace")
    page.keyboard.press("Backspace")
    page.keyboard.type("50", delay=40)
    page.keyboard.press("Tab")
    page.keyboard.type("100", delay=40)
    page.keyboard.press("Tab")
    page.keyboard.type("6000", delay=40)
    page.keyboard.press("Enter")
    vote.get_by_role("radio").nth(1).click()
    vote.get_by_label("because").click()
    page.keyboard.type(REASON, delay=15)
    page.keyboard.press("Enter")


def test_what_was_typed_is_what_is_kept(tmp_path):
    with lab.opened(tmp_path, height=1400, picture="slow") as (page, address):
        files.write(files.canonical(lesson(ASK, BUSY)), tmp_path / "course" / "slow.ipynb")
        notebook = lab.Notebook(page, address, "slow.ipynb")
        notebook.run_all()
        page.evaluate(f"{lab.NOTEBOOK}.content.activeCellIndex = 1")
        notebook.run_commands("run-cell")
        page.wait_for_timeout(600)
        type_all(page)
        page.wait_for_timeout(500)
        notebook.wait_until_idle()
        page.wait_for_timeout(1500)
    entries = ledger_file.load(tmp_path / "ledger.jsonl").entries
    figure, vote = entries["9.call"], entries["9.why"]
    assert (figure.answer, figure.low, figure.high) == (1250, 100, 6000)
    assert (vote.answer, vote.reason) == ("b", REASON)
