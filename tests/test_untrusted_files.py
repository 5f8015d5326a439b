"""Whatever a stranger's file holds, it is read, or left out with one line; never a traceback."""

import copy
import json
import time
from dataclasses import asdict

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from pytest import mark, raises

from course.__main__ import main
from course.commands import progress
from course.predictions.ledger_file import Entry

HOSTILE = [
    "$\\badmacro{$", "$$", "\x1b[2J", "<script>", "", "x" * 10_000, "é" * 300, "\ud800", 10**400,
    -1, 0, 5e-324, 1e308, True, None, [], {}, [[]], {"a": {"b": []}}, "1e3",
]  # fmt: skip
ANYTHING = st.sampled_from(HOSTILE) | st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)
FUZZ = settings(deadline=None, derandomize=True, database=None, suppress_health_check=HealthCheck)


def places(document):
    """Where something stands in a document: lists of keys."""
    yield []
    if isinstance(document, dict | list):
        inner = document.items() if isinstance(document, dict) else enumerate(document)
        for key, value in inner:
            yield from ([key, *rest] for rest in places(value))


@st.composite
def mutations(draw, document):
    """A document with one to three things in it replaced, taken away, or added."""
    document = copy.deepcopy(document)
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.sampled_from(list(places(document))))
        if not at:
            continue
        holder = document
        for key in at[:-1]:
            holder = holder[key]
        match draw(st.sampled_from(["replace", "remove", "add"])):
            case "replace":
                holder[at[-1]] = draw(ANYTHING)
            case "remove":
                del holder[at[-1]]
            case "add" if isinstance(holder, dict):
                holder[draw(st.text(max_size=5))] = draw(ANYTHING)
    return document


ENTRY = Entry("01.slope", "How much?", "µs", answer=50.0, measured=90.0, tier="MEASURED")
LISTS = {"passed": ("1.1",), "finished": ("01",), "entries": (ENTRY,), "answers": ()}
MADE = progress.HandIn(name="Ada", machine="CPU", stopped="", games={}, **LISTS)
HAND_IN = {"version": progress.VERSION, **json.loads(json.dumps(asdict(MADE)))}
VOTE = {"options": ["x", "y"], "answer": "a", "measured": 5.0}  # a figure for its result


def written(document, path):
    """Write what was drawn, as far as JSON and UTF-8 can hold it."""
    text = document if isinstance(document, str) else json.dumps(document)
    path.write_bytes(text.encode(errors="surrogatepass"))
    return path


@mark.slow
@FUZZ
@given(mutations(HAND_IN))
@example("[" * 100_000)
@example("\x00")
@example('{"version": ' + "9" * 400 + "}")
def test_a_hand_in_is_read_or_refused_in_one_line(tmp_path_factory, document):
    path = written(document, tmp_path_factory.getbasetemp() / "h.json")
    try:
        progress.load(path)
    except ValueError as error:
        assert str(error).startswith(f"{path} is no ") and str(error).isprintable()


@mark.slow
@settings(FUZZ, max_examples=12)
@given(documents=st.lists(mutations(HAND_IN), min_size=3, max_size=3))
@example(documents=[HAND_IN | {"entries": [HAND_IN["entries"][0] | VOTE]}])
def test_bad_hand_ins_do_not_cost_a_class_its_page(tmp_path_factory, documents):
    folder = tmp_path_factory.getbasetemp()
    files = [written(each, folder / f"h{i}.json") for i, each in enumerate([*documents, HAND_IN])]
    out = folder / "class.html"
    assert main(["class", *map(str, files), "--out", str(out)]) == 0
    assert "Ada" in out.read_text()


def test_a_file_full_of_wrong_answers_is_refused_at_the_first(tmp_path):
    wrong = HAND_IN | {"answers": [0] * (progress.MOST_BYTES // 4)}
    start = time.thread_time()
    with raises(ValueError, match="answers"):
        progress.load(written(wrong, tmp_path / "h.json"))
    assert time.thread_time() - start < 3, "0.2 s here; all its errors take minutes"


def test_a_file_that_is_too_large_is_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr(progress, "MOST_BYTES", 10)
    with raises(ValueError, match="at most 10 bytes are read"):
        progress.load(written(HAND_IN, tmp_path / "h.json"))
