"""What holds for every lesson: claims are tried, recorded runs were calm, figures have a source."""

import ast
import math
import re
from pathlib import Path

from pytest import mark

from course import catalogue, published
from course.commands import record as recorder
from course.notebooks import files, tree
from labkit.measure import records

LESSONS = catalogue.find()
FOLDER = catalogue.ROOT / "course" / "lessons"
RECORDINGS, PUBLISHED = (sorted(FOLDER.glob(f"*/{x}.json")) for x in ("recording", "published"))


def stamps(source):
    """The lines in which something is stamped PUBLISHED by hand."""
    for node in [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]:
        called = ast.unparse(node.func)
        # what is reconciled with a prediction is worked out from figures whose source is shown
        if not re.search(r"\b(stamp_published|reconcile)$", called):
            tiers = [word.value for word in node.keywords if word.arg == "tier"]
            if called.endswith("stamp"):
                tiers = [*node.args, *(word.value for word in node.keywords)]
            if any(re.search(r"\bPUBLISHED\b", ast.unparse(tier)) for tier in tiers):
                yield ast.unparse(node)[:90]


@mark.parametrize(("name", "lesson"), LESSONS.items(), ids=[x.number for x in LESSONS.values()])
def test_only_figures_with_a_source_are_stamped_published(name, lesson):
    folder = catalogue.ROOT / name.replace(".", "/")
    texts = [path.read_text() for path in folder.glob("*.py")]
    for kind in (tree.LESSONS, tree.SOLUTIONS):
        if path := lesson.notebook(catalogue.ROOT / kind):
            cells = files.read(path).cells
            texts += [cell.source for cell in cells if cell.cell_type == "code"]
    found = [line for text in texts for line in stamps(text)]
    assert found == []


def test_a_stamp_by_hand_would_be_seen():
    assert list(stamps("plots.stamp(ax, Tier.PUBLISHED, note='somewhere')"))
    assert list(stamps("show.together(figures, tier='PUBLISHED')"))
    assert not list(stamps("plots.stamp_published(ax, figure)\nplots.stamp(ax, Tier.MODELLED)"))


def test_on_a_page_whose_cells_are_run_every_claim_is_tried():
    for folder in Path(__file__).parent.iterdir():
        texts = [path.read_text() for path in folder.glob("*.py")]
        tests = "".join(text for text in texts if "Cells(" in text)
        for page in re.findall(r'Cells\("(.+?)"', tests):
            cells = files.read(catalogue.ROOT / tree.LESSONS / f"{page}.ipynb").cells
            claims = [c.id for c in cells if c.cell_type == "code" and "claim(" in c.source]
            assert [cell for cell in claims if f'"{cell}"' not in tests] == [], page


@mark.parametrize("path", RECORDINGS, ids=lambda path: path.parent.name)
def test_recorded_runs_were_calm(path):
    doubts = map(recorder.why_not_to_keep, records.load(path))
    assert [*filter(None, doubts)] == []


@mark.parametrize("path", PUBLISHED, ids=lambda path: path.parent.name)
def test_figures_stand_in_their_quotations_and_have_an_address(path):
    figures = published.load(path.parent.name)
    assert figures
    for name, figure in figures.items():
        stated = [float(word) for word in re.findall(r"\d*\.?\d+", figure.quotation)]
        many = isinstance(figure.value, tuple)
        for number in figure.value if many else [figure.value]:
            if not stated:
                break  # words alone: "a pair of", "two operations"
            assert any(math.isclose(number, one) for one in stated), f"{name}: {figure.quotation}"
        assert figure.unit
        assert 3 < len(figure.quotation) < (1000 if many else 400), f"{name}: quote it briefly"
        source = figure.source
        assert re.match(r"https?://\S+\.\S+$", source.address), name
        assert re.search(r"20\d\d|[0-9a-f]{7}|tag v\d", source.when), f"{name}: no date, no commit"
        if commit := re.search(r"/(?:blob|tree)/([0-9a-f]{7})", source.address):
            assert f"commit {commit[1]}" in source.when
