"""The reading edition: what is prepared for its pages, and the site as a browser finds it."""

import copy
import functools
import http.server
import re
import shutil
import threading

import nbformat
import pytest
from pytest import mark

from course.catalogue import ROOT
from course.notebooks import edition, files
from tests.browser import lab
from tests.course.samples import cell

pytestmark = mark.slow


def notebook(*cells):
    return nbformat.v4.new_notebook(cells=cells)


DRAW = """
from labkit.show import plots, widgets
ax = plots.new_axes("Time")
plots.describe(ax, "a picture")
ax
"""
SLIDE = """
def draw(n):
    ax = plots.new_axes(f"{n} ranks")
    plots.describe(ax, f"{n} ranks")
    return ax
widgets.explore(draw, title="Try", n=(2, 64, 1, 33))
"""
CELLS = {
    "import": "from course.predictions import ledger",
    "names": "from course.predictions.ledger import *",
    "draw": DRAW,
    "ask": 'predict(\n    "9.a", "How long?", "ms", with_range=True)',
    "measure": "run = 42.0",
    "vote": 'ledger.choose("9.b", "Why?", ["the bytes.", "a late rank"], why=True)',
    "compare": 'gate("9.a")\nprint("forty" + "-two")\nreconcile("9.a", run, tier="RECORDED")',
    "decide": 'reconcile("9.b", "b", tier="RECORDED", because="the control shows it")',
    "told": "<details><summary>When you have run it: why?</summary>\n\nFor once.\n\n</details>",
    "after": "run += 1",
    "slide": SLIDE,
    "quiz": 'warmup("00.alpha_beta")',
    "map": "from IPython.display import Markdown\nMarkdown('| lesson | |\\n|-|-|\\n| 00 | done |')",
    "printed": "print('what a cell says in a sentence ' * 4)\nprint()",
    "loop": 'for key in ["9.c"]: choose(key, "Which?", ["x", "y"])',
}


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """A lesson as it ran."""
    path = tmp_path_factory.mktemp("lesson") / "source.ipynb"
    kinds = {"told": "markdown"}
    cells = [cell(name, text, kind=kinds.get(name, "code")) for name, text in CELLS.items()]
    files.write(notebook(cell("title", "# A lesson", kind="markdown"), *cells), path)
    return files.execute(path, LABKIT_STATIC="1")


def test_results_are_folded_from_a_question_to_its_reconciliation(ran):
    page = edition.prepared(copy.deepcopy(ran), [])
    tags = {item.id: item.metadata.tags for item in page.cells if item.cell_type == "code"}
    folded = [name for name, given in tags.items() if "hide-output" in given]
    assert folded == ["measure", "compare", "decide"]
    assert {"until-9-a", "until-9-b"} <= set(tags["compare"]) and "until-9-a" not in tags["decide"]
    hidden = [name for name, given in tags.items() if "remove-input" in given]
    assert hidden == ["ask", "vote", "quiz"]
    assert not tags["loop"] and not tags["after"]
    fold = next(item.source for item in page.cells if item.id == "told")
    assert fold.startswith('<details data-until="tag_until-9-b"><summary>When you have seen the')


def test_neither_widgets_nor_the_cells_for_hosted_notebooks_are_on_the_page():
    view = {"application/vnd.jupyter.widget-view+json": {"model_id": "1"}, "text/html": "<b>x</b>"}
    widget = cell("widget", "explore()")
    widget.outputs = [nbformat.v4.new_output("display_data", data=view)]
    cells = [cell("badges", "[![x](y)](z)", kind="markdown"), cell("hosted", "install()"), widget]
    (shown,) = edition.prepared(notebook(*cells), []).cells
    assert shown.id == "widget" and list(shown.outputs[0].data) == ["text/html"]


def test_a_term_is_linked_once_and_only_in_prose():
    def linked(text, term):
        (shown,) = edition.prepared(notebook(cell("text", text, kind="markdown")), [term]).cells
        return shown.source

    begins, link = "# The ring\n\n`ring` and [a ring](x.md): a", "[ring](/docs/glossary.md#ring)"
    assert linked(f"{begins} ring, another ring.", "ring") == f"{begins} {link}, another ring."
    formula, link_to_alpha = "$$T = \\alpha$$ is", "[alpha](/docs/glossary.md#alpha)"
    assert linked(f"{formula} alpha", "alpha") == f"{formula} {link_to_alpha}"


def test_every_link_to_a_term_finds_its_heading_in_jupyterlab_and_here():
    assert {"ring", "all_reduce", "bus bandwidth"} <= set(edition.terms())
    anchors = {edition.anchor(term) for term in edition.terms()}
    texts = [path.read_text() for path in (ROOT / "notebooks").rglob("*.ipynb")]
    linked = {name for text in texts for name in re.findall(r"glossary\.md#([\w-]+)", text)}
    assert linked and linked <= anchors
    assert ":::" not in (ROOT / edition.GLOSSARY).read_text(), "JupyterLab knows no directives"
    pytest.importorskip("myst_parser")
    assert edition.slug("CPU quota") == "CPU-quota" and edition.slug("A  page") == "a--page"


def test_a_kept_run_is_used_until_its_lesson_or_the_code_changes(monkeypatch, tmp_path):
    lesson = tmp_path / "notebooks" / "01_a.ipynb"
    monkeypatch.setattr(edition, "ROOT", tmp_path)
    ran = []
    execute = lambda path, **_: ran.append(path) or files.read(path)  # noqa: E731
    monkeypatch.setattr(edition.files, "execute", execute)
    steps = [
        ("1", "a = 1", {}, 1),
        ("1", "a = 1", {}, 1),
        ("2", "a = 1", {}, 2),
        ("2", "a = 2", {}, 3),
        ("2", "a = 3", {"calm": True}, 3),
        ("2", "a = 2", {"anew": True}, 4),
    ]
    (tmp_path / "labkit").mkdir()
    for source, code, how, runs in steps:
        files.write(files.canonical(notebook(cell("a", source))), lesson)
        (tmp_path / "labkit" / "launcher.py").write_text(code)
        kept = edition._ran(lesson, tmp_path / "runs", edition._code(), **how)
        assert kept.cells[0].source == source and len(ran) == runs


def test_exercises_come_without_their_solutions(monkeypatch, tmp_path):
    monkeypatch.setattr(edition.files, "execute", lambda path, **_: files.read(path))
    pages = dict(edition.pages(tmp_path))
    assert "NotImplementedError" in pages["exercises/06_exercises.ipynb"]
    assert all("BEGIN SOLUTION" not in page for page in pages.values())
    assert all(name in pages for name in edition.GUIDES)
    assert "[`228-bytes`](/cases/228-bytes.md)" in pages["FIELD_GUIDE.md"]
    assert "](/docs/reference.md)" in pages["docs/labkit.md"]
    assert "\ndocs/reference.md\n" in pages["index.md"]


@pytest.fixture(scope="module")
def site(tmp_path_factory, ran):
    """A lesson, a guide, a module's reference, the cases; `.github/workflows` has all built."""
    pytest.importorskip("sphinx_book_theme")
    folder = tmp_path_factory.mktemp("edition")
    chosen, pages = edition.lesson_files()[:1], edition.pages

    def few(*given, **how):
        for name, text in pages(*given, **how):
            if name == edition.REFERENCE:
                text = re.search(r"## labkit\.measure\.tables.*?```\n", text, re.DOTALL)[0]
            if "exercises/" not in name:
                yield name, text

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(edition, "lesson_files", lambda: chosen)
        patch.setattr(edition, "GUIDES", edition.GUIDES[:1])
        patch.setattr(edition, "pages", few)
        patch.setattr(edition.files, "execute", lambda path, **_: copy.deepcopy(ran))
        edition.build(folder / "html", calm=folder / "calm")
    kept = list((folder / "calm").rglob("*.ipynb"))
    assert len(kept) == 1, "runs are kept where they were sought"
    handler = type("Quiet", (http.server.SimpleHTTPRequestHandler,), {"log_message": lambda *a: 0})
    serving = functools.partial(handler, directory=folder / "html")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), serving)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    shutil.unpack_archive(folder / "html.zip", folder / "unpacked")
    unpacked = folder / "unpacked" / "html" / "notebooks" / f"{chosen[0].stem}.html"
    yield f"http://127.0.0.1:{server.server_address[1]}", chosen[0].stem, unpacked.as_uri()
    server.shutdown()
    server.server_close()


@mark.timeout(300)
@mark.skipif(lab.chromium() is None, reason="no Chromium here: apt-get install chromium")
def test_a_reader_commits_and_the_result_unfolds(site):
    address, lesson, unpacked = site
    with lab.browser() as browser:
        page = browser.new_page(viewport={"width": 390, "height": 1500})
        loaded, errors = [], []
        page.on("request", lambda request: loaded.append(request.url))
        page.on("pageerror", lambda error: errors.append(str(error)))
        assert page.goto(f"{address}/index.html").ok
        page.goto(f"{address}/notebooks/{lesson}.html")
        result = page.get_by_text("forty-two")
        assert not result.is_visible() and "predict(" not in page.content()
        explanation = page.get_by_text("For once.")
        assert not explanation.is_visible(), "text is folded as its result is"
        vote = page.locator('.course-question[data-key="9.b"]')
        vote.get_by_label("a) the bytes.").check()
        vote.get_by_label("because").fill("there are 22")
        vote.get_by_label("because").press("Enter")
        said = vote.get_by_role("status")
        assert "Committed: a) the bytes, because there are 22. It is kept" in said.inner_text()
        assert explanation.is_visible()
        assert page.evaluate("document.activeElement.getAttribute('role')") == "status"
        assert not result.is_visible(), "another question"
        ask = page.locator('.course-question[data-key="9.a"]')
        assert ask.get_by_text("80 % sure that it lies between:").is_visible()
        ask.get_by_label("I expect").fill("40")
        ask.get_by_label("I expect").press("Enter")
        result.wait_for(state="visible")
        assert page.get_by_text("You said: 40 ms").is_visible()
        decided = page.locator('[data-key="9.b"].course-result')
        assert "The control shows it" in decided.inner_text()
        assert page.get_by_alt_text("33 ranks").is_visible()
        page.get_by_label("n = 64").check()
        assert page.get_by_alt_text("64 ranks").is_visible()
        assert not page.get_by_alt_text("33 ranks").is_visible()
        picture = page.get_by_alt_text("a picture")
        assert picture.bounding_box()["width"] < 390, "it fits the width first"
        picture.click()
        assert picture.bounding_box()["width"] > 390
        picture.click()
        assert picture.bounding_box()["width"] < 390
        lab.photograph(page, "lesson", full_page=True)
        assert page.evaluate("document.documentElement.scrollWidth") == 390
        assert page.get_by_role("cell", name="done").is_visible(), "a table that a cell shows"
        said = page.get_by_text("what a cell says").last
        assert said.evaluate("e => e.scrollWidth == e.clientWidth"), "a sentence is wrapped"
        page.reload()
        assert page.get_by_text("forty-two").is_visible(), "the browser keeps it"
        page.goto(f"{address}/docs/reference.html")
        said = page.locator('[id="labkit.measure.tables.Table.html"] + dd').inner_text()
        assert said == "Return it as an HTML table; all text is escaped."
        assert all(url.startswith((address, "data:")) for url in loaded) and not errors
        page.goto(unpacked)  # from a file, without a server
        vote.get_by_label("a) the bytes.").check()
        vote.get_by_role("button", name="Commit").click()
        assert explanation.is_visible() and not errors
