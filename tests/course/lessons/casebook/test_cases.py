"""Each case shows its symptom, its cure reaches par, every suspect is decided by a measurement."""

import json
import re
from contextlib import contextmanager
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from types import SimpleNamespace

import pytest

from course.lessons.casebook import cases
from course.lessons.casebook import readings as read
from course.lessons.casebook import ward as wards
from course.lessons.casebook.cases import CASES, STORIES
from course.lessons.casebook.observe import INSTRUMENTS
from course.lessons.casebook.ward import Suspect, Ward
from course.predictions import ledger, ledger_file
from labkit.measure.tables import Table
from labkit.measure.trace import Kind, Span
from labkit.ranks.errors import CaseFile, RankCase

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("book")]

NOTEBOOK = Path(__file__).parents[4] / "notebooks/08_ward.ipynb"


def words(text):
    return set(re.findall("[a-z]{4,}", text.lower()))


def sure(scores, key, best):
    """The share of a guess that takes the best score, where several have it one of them."""
    wanted = best(scores.values())
    return (scores[key] == wanted) / list(scores.values()).count(wanted)


@pytest.mark.parametrize("best", [max, min])
def test_no_culprit_is_found_by_length_or_by_words_alone(best):
    """Whoever sees only sentences finds two or three of eight by chance."""
    guesses = [0.0, 0.0, 0.0]  # by length, by figures and capitals, by words of the story
    for case in CASES.values():
        says, told = {k: s.says for k, s in case.suspects.items()}, f"{case.title} {case.story}"
        lengths = {key: len(text) for key, text in says.items()}
        assert max(lengths.values()) <= 1.2 * min(lengths.values()), case.name
        marks = {key: len(re.findall(r"\d|[A-Z]", text)) for key, text in says.items()}
        shared = {key: len(words(told) & words(text)) for key, text in says.items()}
        for i, scores in enumerate((lengths, marks, shared)):
            guesses[i] += sure(scores, case.culprit, best)
    assert max(guesses) <= 3.5, guesses


def test_every_case_is_told_with_its_sources():
    used = {name for case in CASES.values() for name in case.symptom}
    used |= {name for story in STORIES for name in story["figures"]}
    assert used <= set(cases.REPORTED)
    for case in CASES.values():
        assert case.ending.cause and case.ending.inferred and len(case.story.split()) <= 60
        assert case.sources and case.by_source != (case.name == "228-bytes")
        assert {suspect.instrument for suspect in case.suspects.values()} <= set(INSTRUMENTS)
        assert case.suspects[case.culprit].says.lower() not in case.story.lower()
    for story in STORIES:
        assert len(story["options"]) == 4 and story["because"]


def test_a_lessons_card_names_the_cases_that_it_deals_out():
    for notebook in NOTEBOOK.parent.glob("0*.ipynb"):
        cells = json.loads(notebook.read_text())["cells"]
        cards = "".join("".join(c["source"]) for c in cells if c["id"].startswith("card"))
        named = {name for name in CASES if re.search(rf"[` ]{name}`", cards)}
        lesson = notebook.name.partition("_")[0]
        assert named == {name for name, case in CASES.items() if case.lesson == lesson}, lesson


def readings_of(monkeypatch, ward, key, values):
    """Let a suspect's own reading be these values, run by run."""
    given = iter(values)
    monkeypatch.setattr(Suspect, "read", lambda self, seen: next(given))
    monkeypatch.setattr(wards, "play", lambda *args, **options: [])
    monkeypatch.setattr(wards, "_shown", lambda *args: Table([], []))
    return ward.diagnose(ward.letter(key), "a reason")


def test_a_diagnosis_is_answered_by_a_measurement_and_counted(monkeypatch):
    case = replace(CASES["averages"], world_size=4)  # it is the answer that counts here
    ward, seen = Ward(case), wards.play(case, instrument="call counts")
    monkeypatch.setattr(wards, "play", lambda *_, **__: seen)
    for closed in (ward.fault, lambda: ward.treat(case.cure)):
        with pytest.raises(ValueError, match="first the diagnosis"):
            closed()
    refuted = ward.diagnose(ward.letter("calls"), "there must be many")
    assert not refuted.right and refuted.state == "fell"
    assert "more than 30 calls" in refuted.text and "showed 6 calls" in refuted.text
    assert "3 of 3 rounds" in refuted.text and "this was a guess" in refuted.text
    open_case = ward.close()
    assert "You have tried 1 so far" in open_case
    assert case.suspects["cpu"].says not in open_case and "92 %" not in open_case
    ward.ask("call counts")
    ward.ask("call counts")
    assert ward.asked == ["call counts"]
    assert "a guess" not in ward.diagnose(ward.letter("calls"), "once more").text
    assert "✘ fell: 6 calls" in str(ward.board) and "6 of 6 rounds" in str(ward.board)
    kept = ledger_file.load().kept["case.averages"]
    assert kept["tries"][0] == ["calls", "there must be many", "fell"] and not kept["diagnosed"]
    row = next(row for row in cases.overview().rows if row[0] == "averages")
    assert row[3:] == ["not yet finished", "so far: 1 instrument asked, 2 tries"]
    for call, nonsense in ((ward.diagnose, "gremlins"), (ward.ask, "stethoscope")):
        with pytest.raises(ValueError, match="there are"):
            call(nonsense)


def test_a_right_diagnosis_opens_the_fault_and_is_told_with_its_tries(monkeypatch):
    ward = Ward(CASES["averages"], asked=["scheduler"])
    assert readings_of(monkeypatch, ward, "late", [10, 20, 30]).state == "fell"
    right = readings_of(monkeypatch, ward, "cpu", [240, 270, 255])
    assert right.right and "Before it you asked 1 instrument." in right.text
    assert "all_gather_object" in ward.fault() and "average(metrics)" in ward.fault()
    ending = ward.close()
    assert "92 %" in ending and "The source's cure:\n\n```python\ndef " in ending
    assert "diagnosed with 1 instrument, at try 2" in ending
    assert "github.com/bo-ke/llm-internal-medicine/pull/68" in ending
    guess = Ward(CASES["228-bytes"])
    assert readings_of(monkeypatch, guess, "late", [90, 90, 90]).right
    assert "guessed, at try 1" in guess.course()
    assert "ours; the source has none" in guess.close()


def test_what_disagrees_or_stands_against_what_is_known_solves_nothing(monkeypatch):
    for key, values, state, said in (
        ("cpu", [240, 20, 255], "not judged", "of 3 rounds 2 say yes, 1 says no"),
        ("late", [80, 90, 85], "stands", "on our calm machine it did not"),
        ("cpu", [1, 2, 3], "fell", "on our calm machine it did not"),
    ):
        ward = Ward(CASES["averages"])
        verdict = readings_of(monkeypatch, ward, key, values)
        assert verdict.state == state and not verdict.right and not ward.solved
        assert said in verdict.text


def treated(monkeypatch, costs, values, results=("same", "same"), others=0.0):
    """Treat a case whose rounds are given: costs and readings, sick and mended in turns."""

    @contextmanager
    def watch():
        yield SimpleNamespace(cpus=others)

    monkeypatch.setattr(wards.other_programs, "watch", watch)
    case = replace(CASES["averages"], cost=lambda seen: next(cost))
    ward, cost, value, result = Ward(case, solved=True), iter(costs), iter(values), cycle(results)
    monkeypatch.setattr(Suspect, "read", lambda self, seen: next(value))
    rank_0 = {"rank": 0, "spans": [stretch("metrics", 0, 1)]}
    monkeypatch.setattr(wards, "play", lambda *_, **options: [rank_0 | {"result": next(result)}])
    return ward, ward.treat(lambda metrics: metrics)


TREATMENTS = [
    ([9, 3] * 3, [240, 20] * 3, 0.0, "It is mended, in 3 of 3 rounds"),
    ([9, 3] * 3, [240, 210] * 3, 0.0, "still there, though it took less time"),
    ([9, 9] * 3, [240, 20] * 3, 0.0, "1 times better; 2 times are needed"),
    ([9, 3, 9, 9, 9, 3], [240, 20] * 3, 0.0, "Not judged: of 3 rounds 2 say yes, 1 says no"),
    ([9, 3] * 3, [240, 20, 9, 20, 240, 20], 0.0, "Not judged: of 3 rounds 2 say yes, 1 says nei"),
    ([8, 5] * 3, [240, 20] * 3, 0.0, "Not judged: of 3 rounds 3 say neither"),
    ([9, 9] * 3, [240, 20] * 3, 1.5, "Not judged: other programs used 1.5 CPUs."),
    ([9, 9] * 3, [240, 240] * 3, 1.5, "Not mended"),
]


@pytest.mark.parametrize("costs, values, others, said", TREATMENTS)
def test_a_cure_is_judged_by_its_time_and_the_culprits_own_reading_unless_others_took_the_time(
    monkeypatch, costs, values, others, said
):
    ward, table = treated(monkeypatch, costs, values, others=others)
    assert said in table.title
    assert (ward.gain > 0) == said.startswith("It is mended")


def test_what_differs_in_the_results_is_said(monkeypatch):
    both = {"sum": 3.0, "collections": 3}, {"sum": 3.0, "collections": 0}
    ward, table = treated(monkeypatch, [9, 3], [240, 20], both)
    assert "Rank 0, collections: 0, with the fault 3." in table.title
    _, table = treated(monkeypatch, [9, 3], [240, 20], ([1, 2], [1, 5]))
    assert "Rank 0, element 1: 5, with the fault 2." in table.title and ward.gain == 0


def test_circles_are_found():
    def told(peers):
        ranks = [
            RankCase(rank, "running", messages=(f"recv from rank {peer}",))
            for rank, peer in peers.items()
        ]
        return wards._standing(CaseFile(tuple(ranks)), 3.0)

    assert "rank 0 for 1, rank 1 for 2, rank 2 for 0." in told({0: 1, 1: 2, 2: 0})
    assert "rank 0 in recv, rank 1 in recv." in told({0: 1, 1: 2}) and "no rank waits" in told({})
    assert "rank 3 for 4, rank 4 for 3." in told({0: 3, 3: 4, 4: 3})


def test_the_letters_are_the_same_every_time_and_the_culprit_has_no_place_of_its_own():
    assert {Ward(CASES["228-bytes"]).letter("late") for _ in range(9)} == {"c"}
    assert {Ward(case).letter(case.culprit) for case in CASES.values()} >= {"a", "b", "c", "d"}


def test_the_table_says_which_lessons_are_finished():
    ledger_file.add("finished", "02")
    rows = {row[0]: row for row in cases.overview().rows}
    finished = {name for name, row in rows.items() if row[3] == "finished"}
    assert finished == {name for name, case in CASES.items() if case.lesson == "02"}
    assert {row[4] for row in rows.values()} == {"not begun"}


@pytest.mark.parametrize("instrument", INSTRUMENTS)
def test_every_instrument_shows_every_rank(instrument):
    case = replace(CASES["first-sum"], world_size=3)
    shown = str(Ward(case).ask(instrument)).splitlines()
    assert all(any(str(rank) in line.split()[:2] for line in shown) for rank in range(3))


def stretch(phase, begin, end, rank=0):
    return Span(rank, phase, Kind.COMPUTE, begin, end)


def test_a_timeline_in_text_shows_inner_phases_and_gaps():
    spans = [stretch("step", 0, 4), stretch("collect", 1, 2), stretch("update", 8, 9.6)]
    seen = [{"rank": 0, "spans": spans}]
    _, *shown, _ = wards._timeline(seen, "title").splitlines()
    assert shown[0] == "title" and shown[-1].endswith("s step, c collect, u update")
    lane = shown[1].split("|")[1]
    assert len(lane) == 96 and lane[15] == "c" and lane[0] == lane[30] == "s"
    assert lane[60] == "." and lane[95] == "u"
    assert shown[-1].startswith("9600.0 ms in all")


@pytest.mark.parametrize("cpus, threads, found", [(1, 1, 1), (1, 2, 2), (2, 1, 1), (4, 4, 2)])
def test_one_thread_a_rank_is_never_too_many(cpus, threads, found):
    seen = [{"threads": threads, "cpus": [*range(cpus)]} for _ in range(2)]
    assert read.threads_per_cpu(seen) == found


def test_the_score_says_first_how_many_and_then_what_each_job_was():
    late, calls, _ = wards_of = [Ward(CASES["averages"]) for _ in range(3)]
    assert "0 of 3 Nothing is diagnosed yet." in str(cases.score(wards_of))
    late.solved, late.asked, late.tries = True, ["scheduler"], [wards.Try("cpu", "", "stands")]
    calls.solved = True
    calls.tries = [wards.Try("late", "", "fell"), wards.Try("cpu", "", "stands")]
    final = cases.score(wards_of)
    assert final.points == "1 of 3" and "with 1 instrument. 1 without any" in final.how
    assert [job[:9] for job in final.jobs] == ["✔ Job 1: ", "– Job 2: ", "– Job 3: "]
    assert final.jobs[2].endswith("still open") and "<b>1 of 3</b>" in final._repr_html_()


def test_a_story_is_told_after_its_vote(capsys, monkeypatch):
    monkeypatch.setenv("COURSE_GATES", "closed")
    cases.ask_story(1)
    with pytest.raises(ledger.Stopped):
        cases.end_story(1)
    ledger_file.commit("08.story-1", "a")
    cases.end_story(1)
    assert STORIES[0]["because"][:40] in capsys.readouterr().out


def test_readings_of_windows_and_turns():
    def ranks(*windows):
        return [{"spans": [stretch("x", *window)]} for window in windows]

    assert read.apart(ranks((0, 1), (0, 1)), "x") == 0
    assert read.apart(ranks((0, 1), (1, 2)), "x") == 100
    turns = [[(i, i + 1), (i + (0.5 if i % 2 else 0), i + 1)] for i in range(10)]
    pair = [{"spans": [stretch("x", *turn[rank], rank) for turn in turns]} for rank in (0, 1)]
    assert read.late(pair, "x") == pytest.approx(25)
    assert read.always(pair, "x") == pytest.approx(100 * 0.25 / 1.5)  # in every second turn only


def test_pauses_are_those_of_every_rank_and_more_than_once():
    def seen(*delays):  # of each turn: which rank is late, and by how much
        def stretches(rank):
            starts = [i + (late if rank == who else 0) for i, (who, late) in enumerate(delays)]
            return [stretch("x", start, i + 0.9, rank) for i, start in enumerate(starts)]

        return [{"rank": rank, "spans": stretches(rank)} for rank in (0, 1)]

    calm = [(0, 0.01), (1, 0.01)] * 5
    assert read.pauses(seen(*calm), "x") == pytest.approx(0.01, rel=0.1)
    both = [*calm, (0, 0.5), (1, 0.5), (0, 0.5), (1, 0.5)]
    assert read.pauses(seen(*both), "x") == pytest.approx(0.5, rel=0.1)
    always_one = [*calm, (0, 0.5), (0, 0.5), (0, 0.5), (1, 0.5)]
    assert read.pauses(seen(*always_one), "x") < 0.1


def test_the_notebook_plays_every_case_in_the_order_of_the_table_and_tells_no_answer():
    cells = json.loads(NOTEBOOK.read_text())["cells"]
    text = "".join("".join(cell["source"]) for cell in cells)
    assert re.findall(r'CASES\["(.+?)"\]', text) == [row[0] for row in cases.overview().rows]
    lessons = [row[2] for row in cases.overview().rows]
    assert lessons == sorted(lessons) and [*CASES] == [row[0] for row in cases.overview().rows]
    assert not any(f'diagnose("{case.culprit}' in text for case in CASES.values())
    assert not any(cell.get("outputs") for cell in cells)
