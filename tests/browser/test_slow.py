"""What is typed is what is kept: far from the kernel, and while it computes."""

from pytest import fixture, mark

from course.notebooks import files
from course.predictions import ledger_file
from tests.browser import lab
from tests.course.samples import lesson
from tests.marks import seldom

pytestmark = [
    mark.slow,
    mark.timeout(400),
    mark.skipif(lab.chromium() is None, reason="no Chromium here: apt-get install chromium"),
]
ASK = """
from course.predictions.ledger import choose, gate, predict

predict("9.{0}", "How long does one call take?", "µs", low=True)
choose("9.why{0}", "What takes so long?", ["the queue", "the network"], why=True)
"""
BUSY = "import time; time.sleep(4)"
REASON = "two of them wait for a CPU, and the third does not"


@fixture(scope="module")
def page(tmp_path_factory):
    """300 ms away, there and back."""
    folder = tmp_path_factory.mktemp("slow")
    with lab.opened(folder, height=1400, picture="slow", delay=0.15) as (page, address):
        cells = [ASK.format(number) for number in range(4)]
        files.write(files.canonical(lesson(*cells, BUSY)), folder / "course" / "slow.ipynb")
        notebook = lab.Notebook(page, address, "slow.ipynb")
        notebook.run_all()
        yield notebook, folder / "ledger.jsonl"


def type_all(page, number):
    """Type as a person does who is in a hurry, with a slip that is mended at once."""
    asked = page.locator(".course-question-form").nth(2 * number)
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
    vote = page.locator(".course-question-form").nth(2 * number + 1)
    vote.get_by_role("radio").nth(1).click()
    vote.get_by_label("because").click()
    page.keyboard.type(REASON, delay=15)
    page.keyboard.press("Enter")


@mark.parametrize("number", [seldom(0), seldom(1), 2, seldom(3)])  # from the third on it is busy
def test_what_was_typed_is_what_is_kept(page, number):
    notebook, ledger = page
    if number >= 2:
        notebook.page.evaluate(f"{lab.NOTEBOOK}.content.activeCellIndex = 4")
        notebook.run_commands("run-cell")
        notebook.page.wait_for_timeout(600)
    type_all(notebook.page, number)
    notebook.page.wait_for_timeout(500)
    notebook.wait_until_idle()
    notebook.page.wait_for_timeout(1500)
    entries = ledger_file.load(ledger).entries
    figure, vote = entries[f"9.{number}"], entries[f"9.why{number}"]
    assert (figure.answer, figure.low, figure.high) == (1250, 100, 6000)
    assert (vote.answer, vote.reason) == ("b", REASON)
