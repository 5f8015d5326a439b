"""The edition's own script in Chromium: what a reader commits, and pictures on a narrow screen."""

import pytest
from pytest import mark

from course.catalogue import ROOT
from tests.browser import lab

pytestmark = [
    mark.timeout(120),
    mark.skipif(lab.chromium() is None, reason="no Chromium here: apt-get install chromium"),
]
STATIC = ROOT / "docs" / "edition" / "_static"
DOT = "data:image/svg+xml,<svg xmlns='http://www.w3.org/2000/svg' width='900' height='300'/>"
PAGE = f"""
<!doctype html><title>page</title><style>{(STATIC / "edition.css").read_text()}</style>
<article class="bd-main">
<div class="course-question" data-key="9.a" data-unit="" data-also="reason"><b>Your vote.</b> Why?
<ol type="a"><li>many calls.</li><li>a late rank</li></ol></div>
<div class="course-question" data-key="9.b" data-unit="µs" data-also="range">How long?</div>
<div class="cell tag_until-9-a"><details class="hide"><summary>Show</summary>
<div class="cell_output">forty-two</div></details></div>
<figure style="margin:0;overflow-x:auto"><img alt="a picture" width="900" style="max-width:100%;\
min-width:675px;height:auto" src="{DOT}"></figure>
</article><script>{(STATIC / "edition.js").read_text()}</script>"""


@pytest.mark.slow
def test_a_reader_gives_a_reason_unfolds_the_result_and_enlarges_a_picture(tmp_path):
    (tmp_path / "page.html").write_text(PAGE)
    with lab.browser() as browser:
        page = browser.new_page(viewport={"width": 390, "height": 700})
        page.goto((tmp_path / "page.html").as_uri())
        summary = page.locator("summary")
        assert summary.inner_text() == "Commit above, or unfold"
        assert page.get_by_text("80 % sure that it lies between:").is_visible()
        page.get_by_label("a) many calls.").check()
        page.get_by_label("because").fill("there are 22")
        page.get_by_label("because").press("Enter")
        assert summary.inner_text() == "The result" and page.get_by_text("forty-two").is_visible()
        said = page.get_by_role("status").first
        assert "Committed: a) many calls, because there are 22. It is kept" in said.inner_text()
        assert page.evaluate("document.activeElement.getAttribute('role')") == "status"
        assert ".." not in page.inner_text("article")

        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        picture = page.get_by_role("button", name="a picture")
        assert picture.bounding_box()["width"] < 390
        picture.click()
        large = page.get_by_role("dialog")
        assert large.get_by_alt_text("a picture").bounding_box()["width"] == 900
        lab.photograph(page, "enlarged")
        page.keyboard.press("Escape")
        assert not large.is_visible()
        lab.photograph(page, "edition-390")
