import os
import re
import subprocess
import sys
import time

from matplotlib.figure import Figure
from pytest import fixture, mark, raises

from course import other_programs
from course.catalogue import ROOT
from course.predictions import figures, forms, ledger, ledger_file
from labkit.measure.records import Provenance, Record, Tier
from labkit.show import alt_text

OPTIONS = ["the network", "the stopwatch", "a queue"]


@fixture(autouse=True)
def closed_gates(book, monkeypatch):
    monkeypatch.setenv("COURSE_GATES", "closed")


def ask(key="01.slope", **answer):
    ledger.predict(key, "How much per pair?", "µs", **answer)


def vote(key="01.cause", **answer):
    ledger.choose(key, "Why?", OPTIONS, **answer)


def made(tier=Tier.MEASURED, others=None):
    return Record("x", "a", {}, [[1.0]], tier, Provenance.here(), others=others)


def test_predict_then_reconcile_shows_all_three(capsys):
    ask(value=100)
    ledger.reconcile("01.slope", 250, model=240, tier="EMULATED")
    shown = capsys.readouterr().out
    for words in ("How much per pair?", "100 µs", "240 µs", "250 µs", "2.5 times below"):
        assert words in shown
    entry = ledger_file.entry("01.slope")
    assert (entry.counts, entry.miss, entry.tier) == (True, 2.5, "EMULATED")


def test_a_second_vote_after_talk_stands_beside_the_first(capsys):
    def votes():
        entry = ledger_file.entry("01.cause")
        return entry.answer, entry.second, entry.after

    vote(answer="a")
    ledger.gate("01.cause")
    vote(answer="b")
    assert "locked until you have seen the result" in capsys.readouterr().out
    ledger.vote_again("01.cause")
    vote(answer="c")
    assert votes() == ("a", "c", None)
    ledger.reconcile("01.cause", "c", tier="MEASURED")
    shown = capsys.readouterr().out
    assert "After talk: c) a queue" in shown and not ledger_file.entry("01.cause").held
    vote(answer="b")
    assert votes() == ("a", "c", "b")


def test_a_tier_is_required_and_may_come_from_records():
    for tier, says in ((None, "tier= or records="), ("GUESSED", "GUESSED")):
        with raises(ValueError, match=says):
            ledger.reconcile("a", 1, tier=tier)
    vote(answer="a")
    with raises(ValueError, match="none of the options"):
        ledger.reconcile("01.cause", "d", tier="MEASURED")
    ledger.reconcile("a", 1, records=[made(Tier.RECORDED)])
    assert ledger_file.entry("a").tier == "RECORDED"


def test_without_a_prediction_too_a_figure_says_whether_it_is_of_here_and_now(capsys):
    for tier, is_here in (("PUBLISHED", False), ("MEASURED", True)):
        ledger.reconcile("02.never-asked", 3.5, tier=tier)
        shown = capsys.readouterr().out
        assert "3.5" in shown and ("here and now" in shown) == is_here
        assert not ledger_file.entry("02.never-asked").counts


def test_an_answer_may_be_corrected_until_its_gate_is_passed_and_then_is_locked(capsys):
    vote(answer="a")
    vote(answer="b", reason="clocks lie")
    assert "You may correct it" in capsys.readouterr().out
    ledger.gate("01.cause")
    vote(answer="c")
    assert "locked" in capsys.readouterr().out
    ledger_file.add("committed", "01.cause", answer="a")  # by a notebook that has not seen the gate
    for _ in range(2):
        ledger.reconcile("01.cause", "c", tier="MEASURED", because="it waits for a CPU")
        vote(answer="c")
    assert "evidence is against" in capsys.readouterr().out
    entry = ledger_file.entry("01.cause")
    assert (entry.answer, entry.after, entry.reason) == ("b", "c", "clocks lie")
    assert entry.right is False and not entry.held


def test_a_range_is_kept_and_judged(capsys):
    ask(value=100, low=50, high=200)
    ledger.reconcile("01.slope", 250, tier="MEASURED")
    assert "Outside your range" in capsys.readouterr().out
    ask("x", value=100, low=150, high=200)
    assert "not between" in capsys.readouterr().out
    ask("wide", value=100, low=50, high=300)
    ledger.reconcile("wide", 250, tier="MEASURED")
    assert "Inside your range. 2.5 times below." in capsys.readouterr().out


def test_a_gate_stops_until_there_is_a_commitment_or_a_skip_of_which_the_ledger_knows(capsys):
    vote()
    with raises(ledger.Stopped) as stop:
        ledger.gate("01.cause")
    assert len(stop.value._render_traceback_()) == 1 and "skip=True" in capsys.readouterr().out
    ledger.gate("01.cause", skip=True)
    ledger.gate("01.cause")
    vote(answer="b")
    assert ledger_file.entry("01.cause").skipped and not ledger_file.entry("01.cause").committed
    ledger.reconcile("01.cause", "b", tier="MEASURED")
    vote(answer="b")
    assert ledger_file.entry("01.cause").after == "b"


def test_a_result_is_as_closed_as_its_gate(capsys):
    """A cell below a gate that stopped may have been on its way already."""
    vote()
    with raises(ledger.Stopped):
        ledger.reconcile("01.cause", "b", tier="MEASURED", because="the watch says so")
    assert "the watch says so" not in capsys.readouterr().out
    assert ledger_file.entry("01.cause").measured is None
    vote(answer="b")
    ledger.reconcile("01.cause", "b", tier="MEASURED", because="the watch says so")
    assert "Your vote stands. The watch says so" in capsys.readouterr().out


def test_a_ratio_is_above_zero_and_half_as_much_is_told(capsys):
    for value in (0, -2):
        ledger.predict("9.ratio", "How many times as long?", "×", value=value)
        assert "is no ratio" in (said := capsys.readouterr().out) and "0.5 ×" in said
    ledger.predict("9.gain", "How much is won?", "ms", value=0)
    assert ledger_file.entry("9.gain").committed and not ledger_file.entry("9.ratio").committed


def test_the_learners_mark_stands_in_the_picture():
    ask(value=100, low=50, high=200)
    vote(answer="b")
    ax = Figure().subplots()
    ledger.mark(ax, "never-asked")
    assert not ax.lines and not ax.texts
    ledger.mark(ax, "01.slope", scale=0.5)
    assert list(ax.lines[0].get_ydata()) == [50, 50] and ax.patches
    ledger.mark(ax, "01.cause", at={"b": (0.5, 0.5)})
    drawn = len(ax.texts)
    ledger.mark(ax.figure, "01.cause")
    assert ax.texts[-1].xy == (0.5, 0.5) and len(ax.texts) == drawn, "a vote has no place by itself"
    described = alt_text.text_of(ax)
    assert "b) the stopwatch" in described and "100 µs (50 to 200)" in described
    ax.set_xlim(0, 14)  # limits that were set: the mark stands at their edge
    ledger.mark(ax, "01.slope", axis="x")
    assert ax.get_xlim() == (0, 14) and ax.texts[-1].get_position()[0] == 14
    assert "(50 to 200) (outside the picture)" in ax.texts[-1].get_text()


def test_a_key_alone_asks_what_a_lesson_has_under_it():
    ledger.choose("02.cause", answer="b", reason="so many")
    ledger.predict("02.hidden", value=40)
    kept, words = ledger_file.load().entries, ledger.questions()
    for key, also in (("02.cause", "reason"), ("02.hidden", "range")):
        assert kept[key].question == words[key]["question"] and kept[key].also == also
    assert figures.in_words(kept["02.cause"]).startswith("b) Many calls")
    assert kept["02.hidden"].unit == "%"
    with raises(ValueError, match=r"no lesson's questions\.json has '02\.nothing'"):
        ledger.choose("02.nothing")


def test_warm_ups_of_all_lessons_have_a_right_answer_and_a_reason():
    for quiz in ledger.warmups().values():
        assert 0 <= quiz.right < len(quiz.options) == len(set(quiz.options)) <= 5
        assert quiz.reason and quiz.question.rstrip()[-1] in "?."


UNREADABLE = [
    ("{", "cut off"),
    ('{"what": "passed", "key": "1.2", "at": "2026", "version": 2}', "version"),
    ('{"what": "committed", "key": "01.slope", "at": "2026", "answer": [1]}', "version"),
]


@mark.parametrize(("line", "why"), UNREADABLE)
def test_a_line_that_cannot_be_read_is_left_out_stays_and_is_named_once(
    book, line, why, monkeypatch, capsys
):
    monkeypatch.setattr(ledger, "_told", set())
    ask(value=1)
    with book.open("a") as file:
        file.write(line + "\n")
    ledger.passed("1.1")
    read, complaint = ledger_file.load(), ledger_file.load().complaint()
    assert read.entries["01.slope"].answer == 1 and read.passed == {"1.1"}
    assert line in book.read_text().splitlines() and list(read.left_out) == [3]
    assert re.fullmatch(f".*{why}.*All other lines count.*", complaint), "in one line"
    ask("a")
    ask("b")
    assert capsys.readouterr().out.count("ledger.jsonl: Left out: line 3 ") == 1


def test_a_file_that_was_cut_off_loses_no_whole_line_and_takes_new_ones(book):
    for number in range(5):
        ledger.passed(f"1.{number}")
    whole = book.read_bytes()
    book.write_bytes(whole[: len(whole) // 2])
    left = set(ledger_file.load().passed)
    assert len(left) == book.read_bytes().count(b"\n")
    ledger.passed("2.1")
    ledger.passed("2.2")
    read = ledger_file.load()
    assert read.passed == left | {"2.1", "2.2"} and len(read.left_out) == 1


def test_other_ends_of_a_line_within_a_text_are_no_ends_of_a_line():
    ledger.choose("a", "one\u2028two\x85three", ["x", "y"], answer="b", reason="so\u2029it is")
    entry = ledger_file.entry("a")
    assert (entry.answer, entry.reason) == ("b", "so\u2029it is")
    assert not ledger_file.load().left_out


def test_a_file_that_cannot_be_written_is_named_with_the_way_out(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("LABKIT_LEDGER", str(tmp_path / "file" / "ledger.jsonl"))
    with raises(OSError, match=r"cannot be written .*Set LABKIT_LEDGER"):
        ask(value=4)


WRITER = """
import sys
from course.predictions import ledger_file
for number in range(100_000):
    ledger_file.add("passed", f"{sys.argv[1]}.{number}", padding="x" * 3000)
    print(f"{sys.argv[1]}.{number}", flush=True)
"""


@mark.slow
def test_notebooks_that_write_at_once_and_are_killed_lose_nothing_that_was_whole(book):
    options = {"env": os.environ | {"PYTHONPATH": str(ROOT)}, "stdout": subprocess.PIPE}
    command = [sys.executable, "-c", WRITER]
    writers = [subprocess.Popen([*command, name], text=True, **options) for name in "ab"]
    first = {writer.stdout.readline().strip() for writer in writers}
    for writer in writers:
        time.sleep(0.3)
        writer.kill()
    whole = re.compile(r"\w+\.\d+(?=\n)")
    confirmed = first.union(*(whole.findall(writer.communicate()[0]) for writer in writers))
    read = ledger_file.load()
    assert len(confirmed) > 20 and confirmed <= read.passed
    assert len(read.left_out) <= len(writers), "at most what a writer was killed in"


def test_figures_are_read_as_people_type_them_and_written_so():
    for typed in ("1250", " 1.25e3 ", "1,250.0 µs", "1250us", "1 250", "+1250."):
        assert figures.read(typed, "µs") == 1250
    for value, text in [(123456.4, "123,456"), (137.58, "137.6"), (25e-8, "0.00000025")]:
        assert figures.written(value) == text
        assert figures.read(text, "") == float(text.replace(",", ""))
    refused = {"a lot": "number", "3 ms": "in µs", "1,5": "comma", "0,125": "comma"}
    for typed, says in refused.items():
        with raises(ValueError, match=says):
            figures.read(typed, "µs")


@fixture
def form(monkeypatch):
    """The form that was displayed last, as a function of nothing."""
    shown = []
    monkeypatch.setattr(forms, "in_notebook", lambda: True)
    monkeypatch.setattr("labkit.show.widgets.display", lambda form, **_: shown.append(form))
    return lambda: shown[-1]


def press(form, **values):
    """Hand over what was typed, as the page does."""
    form._handle_custom_msg({"do": "commit", "values": values}, [])


def test_what_a_form_hands_over_is_read_all_at_once(form):
    ask(with_range=True)
    with raises(ledger.Stopped):
        ledger.gate("01.slope")  # the form stands there as it was asked, with its range
    press(form(), answer="3 ms", low="", high="")
    assert "Not committed" in form().reply["text"] and form().reply["error"]
    press(form(), answer="30", low="10", high="1,000")
    assert "✔ committed: 30 µs (10 to 1,000)" in form().reply["text"] and form().reply["open"]
    entry = ledger_file.entry("01.slope")
    assert (entry.answer, entry.low, entry.high) == (30, 10, 1000)
    vote(why=True)
    press(form(), reason="one CPU")
    assert "choose one of a, b, c" in form().reply["text"]


def test_a_warm_up_tells_its_reason_when_answered_once_and_its_form_closes(
    form, monkeypatch, capsys
):
    quiz = forms.Quiz("00.clock", "Which?", ["one", "two"], 1, "Both count.")
    monkeypatch.setattr(ledger, "warmups", lambda: {"00.clock": quiz})
    ledger.warmup("00.clock", answer="a")
    assert "No: b) two. Both count." in capsys.readouterr().out
    ledger.warmup("00.clock")
    press(form(), answer="")
    assert form().reply["error"] and "Both count" not in form().reply["text"]
    with monkeypatch.context() as patched:
        patched.setattr(ledger_file, "add", lambda *_, **__: 1 / 0)
        press(form(), answer="b")
    assert form().reply["error"] and "Not kept" in form().reply["text"], "it never waits for ever"
    press(form(), answer="b")
    assert "Right" in form().reply["text"] and not form().reply["open"]
    assert [answer.right for answer in ledger_file.load().answers] == [False, True]


@mark.parametrize(("others", "says"), [(1.5, "other programs used 1.5"), (0.1, "leave out")])
def test_a_disturbed_figure_judges_no_prediction(others, says, capsys):
    ask(value=6, low=4, high=9)
    for made_by in ({"tier": "MEASURED", "others": others}, {"records": [made(others=others)]}):
        ledger.reconcile("01.slope", 15, model=6, **made_by)
        shown = capsys.readouterr().out
        assert says in shown and ("Not judged" in shown) == (others > 1)
    assert ledger_file.entry("01.slope").counts == (others < 1)


ROUNDS = [([True] * 3, True), ([False] * 3, True), ([True, False], False)]


@mark.parametrize(("rounds", "judged"), ROUNDS)
def test_rounds_that_agree_judge_a_prediction_as_they_do_a_claim(rounds, judged, capsys):
    ask(value=6, low=4, high=9)
    ledger.reconcile("01.slope", 15, records=[made(others=1.5)], rounds=rounds)
    assert ("Not judged" in capsys.readouterr().out) != judged
    assert ledger_file.entry("01.slope").counts == judged


def test_what_is_off_by_more_than_others_explain_is_judged_and_does_not_count(capsys):
    ask(value=1e6)
    ledger.reconcile("01.slope", 1717, tier="MEASURED", others=1.7)
    assert "582 times above: more than the other programs explain" in capsys.readouterr().out
    assert not ledger_file.entry("01.slope").counts


def test_the_limit_grows_with_the_cpus(monkeypatch):
    for cpus, most in ((1, 0.25), (2, 0.25), (16, 2.0)):
        monkeypatch.setattr(other_programs, "usable_cpus", lambda cpus=cpus: cpus)
        assert other_programs.limit() == most


def test_the_first_calm_result_counts_and_a_vote_says_when_none_was(capsys):
    ask(value=6, low=4, high=9)
    for measured, others in ((30, 1.5), (5, 0.0), (40, 0.0)):
        ledger.reconcile("01.slope", measured, tier="MEASURED", others=others)
    kept = ledger_file.entry("01.slope")
    assert (kept.measured, kept.inside) == (5, True)
    assert "40" in capsys.readouterr().out, "the one just measured is shown"
    vote(answer="a")
    ledger.reconcile("01.cause", "b", tier="MEASURED", others=1.5)
    assert "a calm run does" in capsys.readouterr().out
