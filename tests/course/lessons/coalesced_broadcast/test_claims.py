"""Lesson 03: each claim fails with records in which it is false; its board follows the figures."""

from dataclasses import replace
from types import SimpleNamespace

from pytest import raises

from course import catalogue
from course.comm.buckets import MB
from course.lessons.coalesced_broadcast import evidence, experiment, pictures, programs
from tests.course.lessons.cells import Cells

CELLS = Cells("03_coalesced_broadcast")
RECORDED = catalogue.experiment(experiment.NAME).recorded()
APART = [r for r in RECORDED if "asks" not in r.params]
CURVE_RUN = [r for r in APART if r.params["rate"] != experiment.LINK and r.case in programs.CURVE]
HOSTS = [record for record in APART if record.params["rate"] == experiment.LINK]


def lasting(record, *seconds):
    """The record, with three rounds of three broadcasts that take so long, or each so long."""
    times = [of_round for of_round in (seconds * 3)[:3] for _ in range(3)]
    return replace(record, samples=[times] * 2)


def answering(records):
    """What cells find as the lesson's experiment: it answers with these records."""
    answer = SimpleNamespace(**vars(experiment) | {"compare": lambda *_, **__: records})
    return {"problem": answer, "broadcast": None}


def test_a_kept_buffer_faults_little():
    def names(faults, new=25_000):
        counts = iter([[new] * 2, [faults] * 2])
        return {"curve": CURVE_RUN, "launch": lambda *_, **__: next(counts), "broadcast": None}

    for false in (names(9_000), names(40, new=60)):  # huge pages: both are few
        CELLS.hold("pages", true=names(3), false=false, words="a tenth as often")


def test_calls_cost():
    def names(*many):
        return answering([lasting(CURVE_RUN[0], *many), *rest])

    rest = [lasting(CURVE_RUN[0], seconds) for seconds in (0.05, 0.09, 0.13)]
    for false in (names(0.07), names(0.13, 0.07, 0.13)):
        CELLS.hold("prices", true=names(0.13), false=false, words="1.5 times as long as 2")


def test_one_bucket_takes_as_much_as_the_model_and_three_small_ones_live_at_once():
    def names(whole=102.0, ten=27.0):
        peaks = {"all in one": whole, "10 MB": ten}
        curve = [replace(r, values={"peak": 1e6 * peaks.get(r.case, 1.0)}) for r in CURVE_RUN]
        return {"curve": curve, "of_cap": {programs.CURVE[r.case]["cap"]: r for r in curve}}

    CELLS.hold("memory", true=names(), false=names(whole=1.0), words="as much as the model")
    CELLS.hold("memory", true=names(), false=names(ten=19.0), words="three buckets")


def test_between_hosts_one_by_one_loses_to_every_bucket():
    alike = [lasting(record, 0.08) for record in HOSTS]
    slow = [lasting(HOSTS[0], 0.2), *alike[1:]]
    once = [lasting(HOSTS[0], 0.2, 0.09, 0.2), *alike[1:]]
    for false in (alike, once):
        true = answering(slow)
        CELLS.hold("hosts", true=true, false=answering(false), words="loses to every bucket")


def test_the_vote_on_the_curve_follows_each_round():
    def curve(**ms):
        return [lasting(r, *(t / 1e3 for t in ms.get(r.case, [90]))) for r in CURVE_RUN]

    best = {"one by one": [200], "all in one": [130]}
    assert evidence.fastest(curve(**best)) == ["b", "b", "b"]
    assert evidence.fastest(curve(**best | {"one by one": [200, 60, 200]})) == ["b", "a", "b"]
    assert evidence.fastest(curve(**{"one by one": [200], "all in one": [60]})) == ["c"] * 3
    assert evidence.fastest(curve()) == ["d"] * 3


def test_an_arm_may_be_added_and_renamed():
    """The vote and the bets go by what an arm does, not by its name."""
    ways = {
        "one by one": {"cap": 0, "in_flight": 1},
        "50 MB": {"cap": 50 * MB},
        "ten": {"cap": 10 * MB},
        "everything": {"cap": None},
        "flat state": {"cap": None, "in_flight": 1, "flat": True},
    }
    curve = [lasting(replace(CURVE_RUN[0], case=case), 0.1) for case in ways]
    assert evidence.fastest(curve, ways) == ["d"] * 3
    assert list(evidence.by_cap(curve, ways)) == [0, 50 * MB, 10 * MB, None]
    places = pictures.places_of_votes(curve, ways)
    assert {letter: row for letter, (_, row) in places.items()} == {"a": 0, "b": 2, "c": 3}


def test_the_experiments_of_the_cell_are_those_that_we_recorded():
    names = answering([]) | {"board": None}
    names["problem"].ask = lambda *_, **__: []
    names["evidence"] = SimpleNamespace(hold=lambda *_: None)
    assert CELLS.run("ask", **names)["pairs"] == programs.EXPERIMENTS


def test_of_a_kernel_that_gives_no_huge_pages_the_recorded_run_is_shown(
    monkeypatch, tmp_path, capsys
):
    setting = tmp_path / "enabled"
    monkeypatch.setattr(experiment, "SETTING", setting)
    for text, given in (("[always] madvise never", "always"), ("always madvise [never]", "never")):
        setting.write_text(text)
        assert experiment.huge_pages() == given
    shown = experiment.ask(programs.broadcast, "E")
    assert {str(record.tier) for record in shown} == {"RECORDED"}
    assert [record.case for record in shown] == [*programs.GAP, *programs.EXPERIMENTS["E"]]
    assert "E cannot be made" in capsys.readouterr().out
    setting.unlink()
    assert experiment.huge_pages() == ""


def of(name, **world):
    """The records of an experiment in the lesson's own world, or in another."""
    return [r for r in RECORDED if experiment.of_experiment(r) == {"asks": name} | world]


def test_huge_pages_convict_new_memory_and_where_another_is_guilty_they_never_do():
    assert held(of("E")).left == ["c"]
    left = {letter: held(of("E", world=letter)).left for letter in "abd"}
    assert left == {"a": ["a", "b", "d"], "b": [*"abcd"], "d": ["a", "b", "d"]}  # b: not judged
    small, _, large, _ = of("E")
    for record in (small, large):
        assert f"{record.values['faults']:,.0f} faults" in CELLS.texts["ours"]


def held(records, case="", samples=()):
    """The board to which records were held, one of them with other samples."""
    board = evidence.INVESTIGATION.empty()
    evidence.hold(board, [replace(r, samples=samples) if r.case == case else r for r in records])
    return board


def test_one_experiment_leaves_two():
    board = held(of("A"))
    assert board.left == ["b", "c"]
    assert "Next: B" in board.verdict()


def test_rounds_that_disagree_decide_nothing():
    records = of("C")
    whole, kept = (next(r for r in records if r.case == case) for case in programs.EXPERIMENTS["C"])
    pairs = zip(whole.samples, kept.samples, strict=True)
    mixed = [[*times[:3], *other[3:]] for times, other in pairs]
    assert held(records, kept.case, mixed).state("c") == "not judged"


def test_where_no_huge_page_came_e_says_nothing(capsys):
    alike = [replace(record, values={"faults": 25_000.0}) for record in of("E")]
    assert held(alike).left == [*"abcd"]
    assert "Linux gave no huge pages" in capsys.readouterr().out


def test_a_run_that_is_missing_is_told_in_one_line(capsys):
    board = evidence.INVESTIGATION.empty()
    kept = [record for record in of("A") if record.case != "25 MB, kept, one at a time"]
    for records, words in (([], "no run was measured"), (kept, "A takes four runs; measured: all")):
        evidence.hold(board, records)
        line = capsys.readouterr().out
        assert words in line and line.count("\n") == 1
    assert not board.tests


def test_without_a_difference_there_is_nothing_to_explain():
    records = of("A")
    board = held(records, "all in one", next(r for r in records if r.case == "25 MB").samples)
    assert all(board.state(letter) == "not judged" for letter in board.suspects)


def test_each_pair_takes_one_thing_away():
    """From one side, or from both alike: then they differ in their cap alone, as the gap does."""
    for name, pair in programs.EXPERIMENTS.items():
        first, second = ({"in_flight": 2} | way for way in pair.values())
        differ = {key for key in {*first, *second} if first.get(key) != second.get(key)}
        taken = {"B": {"in_flight"}, "C": {"kept", "in_flight"}}  # C has a bucket a dtype: two
        assert differ == taken.get(name, {"cap"})


def test_the_prices_are_those_of_the_reply():
    many, two = (1e3 * r.summary.median for r in APART if r.case in programs.CALLS)
    assert [round(many), round(two), round((many - two) / 318, 2)] == [131, 50, 0.26]
    new, kept = (1e3 * r.summary.median for r in of("C") if r.case in programs.EXPERIMENTS["C"])
    assert (round(kept - two), round(new - kept)) == (42, 44)


def test_ranks_that_gain_nothing_say_nothing_of_the_lock():
    faster = evidence.twice_in_words(0.4, 0.2, others=0.0)
    assert "The ranks needed 50% of the threads' time." in faster and "lock" not in faster
    alike = evidence.twice_in_words(0.4, 0.4, others=1.3)
    assert "nothing about the lock" in alike and "used 1.3 CPUs" in alike
    assert "Other programs" not in evidence.twice_in_words(0.4, 0.5, others=None)


def test_an_experiment_of_which_nothing_is_recorded_is_named():
    board = evidence.INVESTIGATION.empty()
    without = [record for record in RECORDED if record.params.get("asks") != "B"]
    with raises(LookupError, match=r"B nothing is recorded in the lesson's own .* --only own"):
        evidence.hold_all(board, without, "")
