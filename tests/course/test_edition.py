"""The reading edition: what is prepared for its pages, and the site as a browser finds it."""

import functools
import http.server
import shutil
import threading

import nbformat
import pytest
from pytest import mark

from course import edition
from course.catalogue import ROOT
from labkit.measure.tables import Table
from labkit.show import plots, widgets
from tests.course.samples import cell


def notebook(*cells):
    return nbformat.v4.new_notebook(cells=cells)


def output(data):
    return nbformat.v4.new_output("display_data", data=data)


def test_results_are_folded_behind_their_prediction():
    cells = [
        cell("ask", 'ledger.predict(\n    "9.a", "How long?")'),
        cell("measure", "run()"),
        cell("compare", 'ledger.reconcile("9.a", 3)'),
        cell("after", "more()"),
    ]
    page = edition.prepared(notebook(*cells), [])
    folded = [one.id for one in page.cells if "hide-output" in one.metadata.get("tags", [])]
    assert folded == ["measure", "compare"]


def test_pictures_stand_where_widgets_would():
    widget = cell("widget", "explore()")
    view = {"application/vnd.jupyter.widget-view+json": {"model_id": "1"}, "text/html": "<b>x</b>"}
    widget.outputs = [output(view)]
    (shown,) = edition.prepared(notebook(widget), []).cells[-1].outputs
    assert list(shown.data) == ["text/html"]


def test_a_term_is_linked_once_and_only_in_prose():
    text = "# The ring\n\n`ring` and [a ring](x.md): a ring, another ring."
    page = edition.prepared(notebook(cell("text", text, kind="markdown")), ["ring"])
    linked = page.cells[-1].source
    assert linked.count("{term}") == 1
    assert linked.endswith("a {term}`ring <ring>`, another ring.")


def test_every_term_is_found():
    assert {"ring", "all_reduce", "bus bandwidth"} <= set(edition.terms())


def test_sliders_become__small_multiples():
    def draw(n, size):
        return plots.new_axes(f"{n} ranks, {size}")

    controls = {"n": (2, 10, 1, 4), "size": [1.0, 2.0]}
    fields = {name: widgets._field(name, control) for name, control in controls.items()}
    page = widgets._small_multiples(draw, "How many?", fields)
    assert page.count("<figure") == 5
    assert "n = 2" in page and "n = 10" in page and "size = 2" in page


def test_exercises_come_without_their_solutions():
    pages = edition._exercise_pages()
    assert "NotImplementedError" in pages["exercises/06_equivalent_collectives-6-1.md"]
    assert all("BEGIN SOLUTION" not in page for page in pages.values())
    assert all(page.startswith("# ") for page in pages.values())


def test_each_case_has_a_page_that_folds_its_diagnosis():
    pages = edition._lesson_pages()
    assert "masks" in pages["cases/index.md"]
    page = pages["cases/masks.md"]
    assert page.startswith("# 15 GB/s instead of 42\n") and "labkit case masks" in page
    before, _, folded = page.partition("## The diagnosis")
    assert "https://github.com/" in before and "**mask**" not in before and "**mask**" in folded
    assert page.count("<details>") == page.count("</details>") == 6


def test_links_between_files_become_links_between_pages(monkeypatch):
    text = "[a](../FIELD_GUIDE.md#top) ![p](../pictures/x.png) [w](https://x.org/y) [c](run.py)"
    monkeypatch.setattr(edition.hosted, "address", lambda root: "")
    assert edition._relinked(text, "docs", "") == (
        "[a](field-guide.md#top) ![p](pictures/x.png) [w](https://x.org/y) c"
    )
    monkeypatch.setattr(edition.hosted, "address", lambda root: "https://github.com/a/b")
    assert "[c](https://github.com/a/b/blob/HEAD/docs/run.py)" in edition._relinked(
        text, "docs", ""
    )
    lesson = edition._relinked("[e](../exercises/01_x.ipynb)", "notebooks", "lessons")
    assert lesson == "[e](../exercises/01_x.md)"


def test_guides_link_the_cases_that_they_name():
    guide = edition._guides()["field-guide.md"]
    assert "| [`masks`](cases/masks.md)" in guide


def test_the_cells_for_hosted_notebooks_are_not_on_the_page():
    cells = [cell("badges", "[![x](y)](z)", kind="markdown"), cell("hosted", "install()")]
    page = edition.prepared(notebook(*cells, cell("a", "1")), [])
    assert [one.id for one in page.cells] == ["a"]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    pytest.importorskip("sphinx_book_theme")
    out = tmp_path_factory.mktemp("edition") / "html"
    executed = shutil.copytree(ROOT / "notebooks", tmp_path_factory.mktemp("run") / "notebooks")
    path = executed / "07_eighty_gpus.ipynb"
    with_table = nbformat.read(path, as_version=4)
    table = Table(["what", "GB/s"], [["a card", 49.0]], title="a result")
    first = next(one for one in with_table.cells if one.id == "puzzle-table")
    first.outputs = [output({"text/html": table.html(), "text/plain": str(table)})]
    nbformat.write(with_table, path)
    told = []
    edition.build(out, executed=executed, say=told.append)
    assert told[-1] == "", "Sphinx warns"
    handler = type("Quiet", (http.server.SimpleHTTPRequestHandler,), {"log_message": lambda *a: 0})
    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(handler, directory=out)
    )
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


@mark.slow
@mark.timeout(300)
@mark.skipif(shutil.which("chromium") is None, reason="needs Chromium")
def test_pages_are_whole_accessible_and_ask_no_other_server(site):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as engine:
        browser = engine.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        for scheme in ("light", "dark"):
            page = browser.new_page(color_scheme=scheme)
            asked = []
            page.on("request", lambda request: asked.append(request.url))  # noqa: B023
            for path in ("index", "lessons/07_eighty_gpus", "exercises/07_eighty_gpus-7-1",
                         "cases/masks", "field-guide", "cluster", "glossary",
                         "api/course.runs"):  # fmt: skip
                response = page.goto(f"{site}/{path}.html")
                assert response.ok, path
                found = axe.run(page).response["violations"]
                serious = [
                    (v["id"], [n["target"] for n in v["nodes"]][:3])
                    for v in found
                    if v["impact"] in {"serious", "critical"}
                ]
                assert serious == [], f"{path}, {scheme}"
            page.goto(f"{site}/lessons/07_eighty_gpus.html")
            figure = page.locator("td.figure").first
            assert figure.evaluate("it => getComputedStyle(it).display") == "table-cell"
            elsewhere = [url for url in asked if not url.startswith((site, "data:"))]
            assert elsewhere == []
        narrow = browser.new_page(viewport={"width": 390, "height": 844})
        for path in ("lessons/01_gloo_scaling", "exercises/02_gradient_all_reduce-2-3",
                     "field-guide", "api/labkit.fabric.fabric"):  # fmt: skip
            narrow.goto(f"{site}/{path}.html")
            assert narrow.evaluate("document.documentElement.scrollWidth") == 390, path
        browser.close()
