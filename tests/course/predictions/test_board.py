import re

from pytest import mark, raises

from course.commands import progress
from course.notebooks import files
from course.predictions import ledger
from course.predictions.board import Board, Experiment
from course.predictions.ledger_file import entry
from course.runs import quiet
from tests.course.samples import lesson

pytestmark = mark.usefixtures("book")
NAMES = {"a": "a late rank", "b": "many calls", "c": "less bandwidth", "d": "arithmetic"}
EXPERIMENTS = {
    "A": Experiment("one rank late", asks="a"),
    "B": Experiment("calls without bytes", asks="b"),
    "C": Experiment("thinner links", asks="c"),
    "D": Experiment("the wall", asks="cd", how="python -m wall"),
}


def make(**options):
    return Board("Where?", NAMES, EXPERIMENTS, **{"say": quiet, "apart": {"cd": "n"}} | options)


def told(board, **outcomes):
    """Test by names like `aA`: True, False, None or a list of rounds."""
    for place, rounds in outcomes.items():
        board.test(*place, "it would be so", rounds, found=f"found of {place}", exact=True)
    return board


EVIDENCE = [
    ({}, "abcd", "no experiment has been run"),
    ({"aA": False, "bB": False, "cC": True, "dD": False}, "c", "a suspect, not a proof"),
    ({"aA": False, "bB": False, "cC": True, "cD": False, "dD": True}, "d", "What is left is d"),
    ({"aA": False, "bB": False, "cC": True, "dD": True}, "cd", "separate c from d: n"),
    ({"aA": False, "bB": False, "dD": False}, "c", "itself it is not asked"),
    ({"aA": False, "bB": False, "cC": True}, "cd", "Next: D, the wall (python -m wall)"),
    ({"aA": [True, False, True], "bB": False, "cC": True, "dD": False}, "ac", "Not judged: a"),
    ({"aA": False, "bB": False, "cC": False, "dD": False}, "", "refutes all 4"),
]


@mark.parametrize(("tests", "left", "says"), EVIDENCE)
def test_the_verdict_follows_the_evidence(tests, left, says):
    board = told(make(), **tests)
    assert "".join(board.left) == left
    assert says in board.verdict()
    assert ("separate c from d" in board.verdict()) == bool(tests and {"c", "d"} <= set(left))
    ours = told(make(), aA=False, bB=False, cC=True, dD=False)
    assert ("On our calm machine c was left" in board.verdict(ours)) == (left == "")


def test_who_falls_by_two_experiments_is_told_both():
    assert told(make(), cC=False, cD=False).fates == {"c": "fell, by C and D"}


def test_running_until_it_agrees_is_no_way_out():
    board = told(make(), aA=[True, True, False])
    for _ in range(5):
        assert told(board, aA=[True] * 3).state("a") == "not judged"
    board = told(make(), aA=[False] * 3)
    assert board.state("a") == "fell"
    assert told(board, aA=[True] * 3).state("a") == "not judged", "two runs that disagree"


def test_a_disturbed_single_run_decides_nothing_and_a_calm_one_replaces_it():
    board = make()
    for came_out, others, state in [
        (True, 1.6, "not judged"), (False, 1.6, "not judged"), (False, 0.1, "fell")
    ]:  # fmt: skip
        board.test("a", "A", "p", came_out, found="f", others=others)
        assert board.state("a") == state


VOTES = [
    ("a", "fell, by A", False, "Your vote, a, fell, by A."),
    ("c", "still standing", True, "Your vote, c, is still standing."),
    ("b", "", None, "Your vote, b, is not scored: not judged."),
    ("d", "", None, "Your vote, d, is not scored: not asked."),
]


@mark.parametrize(("vote", "fate", "right", "says"), VOTES)
def test_the_ledger_keeps_what_became_of_the_vote(vote, fate, right, says, capsys, tmp_path):
    ledger.choose("9.x", "Where?", list(NAMES.values()), answer=vote)
    board = make(key="9.x", say=print)
    told(board, aA=False, bB=[True, False, True], cC=True)
    ledger.reconcile("9.x", board)
    shown = capsys.readouterr().out
    assert says in shown and "◂ your vote" in shown
    kept = entry("9.x")
    assert (kept.fates.get(vote, ""), kept.right, kept.held) == (fate, right, vote == "a")
    assert kept.measured == "b or c or d"
    assert progress.load(progress.save(progress.hand_in(), tmp_path / "mine")).entries == [kept]


def test_a_board_that_has_grown_is_what_counts_and_an_empty_one_does_not():
    ledger.choose("9.x", "Where?", list(NAMES.values()), answer="a")
    board = make(key="9.x", say=print)
    ledger.reconcile("9.x", board)
    assert entry("9.x").measured is None, "the vote stays locked"
    ledger.reconcile("9.x", told(board, aA=True))
    assert entry("9.x").fates == {"a": "still standing"}
    ledger.reconcile("9.x", told(board, aD=False))
    assert entry("9.x").fates == {"a": "fell, by D"}


def test_a_board_needs_no_vote_and_a_test_says_what_would_have_refuted_it(capsys):
    board = told(make(), aA=False, cC=True)
    assert capsys.readouterr().out == "" and board.of_the_vote() == ""
    text = str(board)
    assert re.search(r"a +a late rank +✘ fell, by A", text) and "your vote" not in text
    assert "A  ✘ fell: found of aA" in text
    told(make(say=print), aA=[False] * 3)
    shown = capsys.readouterr().out
    assert "A tests a, a late rank. If a is right: it would be so." in shown
    assert "✘ fell: found of aA (3 of 3 rounds)" in shown


def test_the_page_is_a_table_with_headers_text_and_signs_and_escapes():
    board = told(make(), aA=False)
    board.test("b", "B", "p", [True, None, True], found="<script>&", exact=True)
    page = board.html()
    assert page.count('role="columnheader"') == 6 and page.count('role="rowheader"') == 4
    words = ("<b>fell</b>", "<b>not judged</b>", "✘", "&lt;script&gt;&amp;")
    assert all(word in page for word in words) and "<script>" not in page


def test_wrong_names_say_which_there_are():
    with raises(ValueError, match="there are a, b, c, d"):
        make().test("x", "A", "p", True, found="f")
    with raises(ValueError, match="there are A, B, C, D"):
        make().test("a", "X", "p", True, found="f")


@mark.slow
def test_in_a_notebook_the_board_that_was_shown_grows_in_place():
    notebook = lesson(
        "from course.predictions.board import Board, Experiment\n"
        "board = Board('Where?', {'a': 'a late rank'}, {'A': Experiment('one late', asks='a')})\n"
        "board",
        "board.test('a', 'A', 'it would grow', [False] * 3, found='it did not', exact=True);",
    )
    files.run(notebook)
    (shown,), (said,) = (cell.outputs for cell in notebook.cells)
    assert "it did not" in shown["data"]["text/html"] and "✘ fell" in shown["data"]["text/plain"]
    assert said["output_type"] == "stream" and "it would grow" in said["text"]
