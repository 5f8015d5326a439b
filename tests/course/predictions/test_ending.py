"""A lesson ends in a card."""

from course.predictions import ledger, ledger_file


def card(capsys, **figures):
    capsys.readouterr()
    ledger.finished("02", **figures)
    return capsys.readouterr().out.splitlines()


def test_a_card_says_what_was_found_what_one_can_do_and_what_became_of_bets(book, capsys):
    far_and_near = ("calls", "How many?", "calls", 20, 22), ("far", "How far?", "ms", 1, 300)
    exact = "where", "In which?", "call", 0, 0
    for key, question, unit, value, measured in (*far_and_near, exact):
        ledger.predict(f"02.{key}", question, unit, value=value)
        ledger.reconcile(f"02.{key}", measured, tier="MEASURED")
    for key, low, high in (("inside", 1, 500), ("outside", 90, 110)):
        ledger.predict(f"02.{key}", f"And {key}?", "ms", value=100, low=low, high=high)
        ledger.reconcile(f"02.{key}", 120 if key == "outside" else 400, tier="MEASURED")
    ledger.choose("02.why", "Why?", ["bytes", "a late rank"], answer="b")
    ledger.reconcile("02.why", "b", tier="RECORDED")
    ledger.choose("02.open", "Which?", ["x", "y"], answer="a")
    ledger.choose("02.board", "Who?", ["x", "y", "z"], answer="a")
    fates = {"a": ledger_file.STANDING, "c": "fell, by A"}
    ledger_file.add("judged", "02.board", measured="a or b", fates=fates)
    ledger.predict("01.other", "Another lesson's?", "ms", value=1)
    title, figures, can, *bets, after = card(capsys, yours="1.4 times", theirs="4.7 times")
    assert title.startswith("✔ 02 · 280 ms or 60?")
    assert figures == "Yours: 1.4 times; theirs: 4.7 times"
    assert can.startswith("Now you can split the time of a collective")
    assert [bet.strip() for bet in bets] == [
        "How many? You said 20 calls; it was 22 calls ✔.",
        "How far? You said 1 ms; it was 300 ms.",
        "In which? You said 0 call; it was 0 call ✔.",
        "And inside? You said 100 ms (1 to 500); it was 400 ms ✔.",
        "And outside? You said 100 ms (90 to 110); it was 120 ms.",
        "Why? You said b) a late rank; it was b) a late rank ✔.",
        "Which? You said a) x; not judged yet.",
        "Who? You said a) x; your run leaves a or b.",
    ]
    assert after == "Next: the exercises of 02 (../exercises/02_exercises.ipynb)"


def test_after_an_exercise_the_next_lesson_is_the_next_click(book, capsys):
    ledger.passed("2.1")
    link = "Next: 03 · One broadcast or three hundred? (03_coalesced_broadcast.ipynb)"
    assert card(capsys)[-1] == link


def test_who_finishes_a_workshop_has_no_card(book, capsys):
    ledger.finished("ws")
    assert capsys.readouterr().out == ""
