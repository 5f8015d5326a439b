"""What holds for every lesson: published figures have a source, recorded runs were calm."""

import ast
import importlib
import re

from pytest import mark, xfail

from course import author, catalogue, notebooks
from course.published import Published, Source
from labkit.measure import records

LESSONS = catalogue.find()
SOURCED = [name for name in LESSONS if importlib.util.find_spec(f"{name}.published")]
STATED = ("p2p_topology", "pipeline_p2p", "equivalent_collectives")
"""Lessons whose figures all stand in the words that are quoted; those of others are in logs."""
RECORDINGS = sorted((catalogue.ROOT / "course" / "lessons").glob("*/recording.json"))


def values(value):
    """What a container holds, however deep."""
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, list | tuple):
        yield value
        return
    for part in value:
        yield from values(part)


@mark.parametrize("name", SOURCED)
def test_published_figures_have_words_and_an_address(name):
    module = importlib.import_module(f"{name}.published")
    held = {
        name: value
        for name, value in vars(module).items()
        if not name.startswith("_") and not callable(value) and not isinstance(value, type(ast))
    }
    for label in ("annotations", "COLUMNS", "GPUS"):  # no figures: a table's headings
        held.pop(label, None)
    for name, value in held.items():
        for figure in values(value):
            assert isinstance(figure, Published | Source), f"{name} is no published figure"
            source = figure.source if isinstance(figure, Published) else figure
            assert re.match(r"https?://\S+\.\S+$", source.address), name
            assert re.search(r"20\d\d|[0-9a-f]{7}|tag v\d", source.when), (
                f"{name}: no date, no commit, no tag"
            )
            if commit := re.search(r"/(?:blob|tree)/([0-9a-f]{7})", source.address):
                assert f"commit {commit[1]}" in source.when
            if isinstance(figure, Published):
                most = 400 if isinstance(figure.value, float | int) else 1000  # a table
                assert 3 < len(figure.quotation) < most, f"{name}: quote the words, briefly"


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
    for kind in (author.LESSONS, author.SOLUTIONS):
        if path := lesson.notebook(catalogue.ROOT / kind):
            cells = notebooks.read(path).cells
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
    assert [doubt for record in found if (doubt := author.why_not_to_keep(record))] == []
