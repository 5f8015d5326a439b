"""What holds for every lesson: no figure is stamped by hand, recorded runs were calm."""

import ast
import re

from pytest import mark, xfail

from course import catalogue
from course.commands import record as recorder
from course.notebooks import files, tree
from labkit.measure import records

LESSONS = catalogue.find()
RECORDINGS = sorted((catalogue.ROOT / "course" / "lessons").glob("*/recording.json"))


def stamps(source):
    """The lines in which something is stamped PUBLISHED by hand."""
    for node in ast.walk(ast.parse(source)):
        # what is reconciled with a prediction is worked out from figures whose source is shown
        if isinstance(node, ast.Call) and not re.search(
            r"\b(stamp_published|reconcile)$", ast.unparse(node.func)
        ):
            tiers = [*node.args, *(word.value for word in node.keywords)]
            stamping = ast.unparse(node.func).endswith("stamp")
            tiers = tiers if stamping else [w.value for w in node.keywords if w.arg == "tier"]
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


@mark.parametrize("path", RECORDINGS, ids=lambda path: path.parent.name)
def test_recorded_runs_were_calm(path):
    found = records.load(path)
    if any(record.others is None for record in found if record.samples):
        xfail("recorded before anybody watched what other programs did: record it again")
    assert [doubt for record in found if (doubt := recorder.why_not_to_keep(record))] == []
