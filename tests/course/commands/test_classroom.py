import os
import random
import re

from pytest import mark, raises

from course.__main__ import main
from course.commands import classroom, progress
from course.predictions import inventory, ledger

pytestmark = mark.usefixtures("book")


def learner(number, folder, monkeypatch):
    monkeypatch.setenv("LABKIT_LEDGER", str(folder / f"ledger-{number}.jsonl"))
    draw = random.Random(number)
    ledger.predict("01.slope", "How much per <pair>?", "µs", value=draw.lognormvariate(4, 1))
    ledger.reconcile("01.slope", 100.0 * draw.uniform(0.8, 1.2), tier="MEASURED")
    for answer in "ab" if number % 3 else "bb":  # two of three know it, the others learn it
        ledger.choose("02.cause", "Why?", ["the bytes", "a late rank"], answer=answer)
        ledger.reconcile("02.cause", "b", tier="RECORDED")
    ledger.choose("03.cause", "Where do you stop?", ["here", "there"], answer="a")
    inventory.inventory("before", answers="abababababab")
    inventory.inventory("after", answers="adcacdbdbacd")  # all right
    ledger.keep("case.stall", {"asked": 2 + number % 2, "diagnosed": number % 2 == 0})
    ledger.passed("1.1")
    name = "Ada <b>" if number == 0 else ""
    return progress.save(progress.hand_in(name), folder / f"{number}.json")


def test_a_class_becomes_one_page(tmp_path, monkeypatch, capsys):
    files = [str(learner(number, tmp_path, monkeypatch)) for number in range(6)]
    out, bad = tmp_path / "class.html", tmp_path / "bad.json"
    bad.write_text('{"version": 2}')
    assert main(["class", *files, str(bad), "--out", str(out)]) == 0
    assert "bad.json is no hand-in" in capsys.readouterr().err
    page = out.read_text()
    assert "A class of 6" in page
    assert "How much per &lt;pair&gt;?" in page and "Ada &lt;b&gt;" in page
    assert re.search(r"&lt;pair&gt;\?</td>\s*<td[^>]*>6</td>", page), "six predictions"
    assert "a) the bytes" in page
    assert re.search(r"the timer is the transfer</td>\s*<td[^>]*>[^<]*%</td>\s*<td[^>]*>100%", page)
    assert re.search(r"stall</td>\s*<td[^>]*>6</td>\s*<td[^>]*>3</td>\s*<td[^>]*>2.5", page)
    assert "03.cause" in page, "where people stopped"
    assert not re.search(r'(src|href)="http', page), "nothing from the network"


def test_the_page_of_a_class_is_for_the_instructor_alone(tmp_path, monkeypatch):
    handed_in, out = learner(0, tmp_path, monkeypatch), tmp_path / "class.html"
    for _ in range(2):  # a new one, and last week's, which was open to others
        assert main(["class", str(handed_in), "--out", str(out)]) == 0
        assert "A class of 1" in out.read_text() and out.stat().st_mode & 0o777 == 0o600
        out.chmod(0o644)


def test_votes_after_talk_have_a_column_of_their_own(monkeypatch):
    monkeypatch.setenv("COURSE_GATES", "closed")
    options = ["the bytes", "a late rank"]
    ledger.choose("02.cause", "Why?", options, answer="a")
    ledger.gate("02.cause")
    ledger.vote_again("02.cause")
    ledger.choose("02.cause", "Why?", options, answer="b")
    text = re.sub("<[^>]*>", " ", str(classroom.page([progress.hand_in()])))
    page = " ".join(text.split())
    assert "option before after talk after" in page
    assert "a) the bytes 1 0 0 b) a late rank 0 1 1" in page


def test_a_watched_folder_is_written_again_when_something_comes(tmp_path, monkeypatch):
    folder, out, looks = tmp_path / "in", tmp_path / "class.html", []
    folder.mkdir()

    def sleep(_):
        looks.append(out.read_text() if out.exists() else "")
        if len(looks) > 2:
            raise KeyboardInterrupt
        learner(len(looks), folder, monkeypatch)
        (folder / f"dangling-{len(looks)}.json").symlink_to("nothing")
        os.mkfifo(folder / f"fifo-{len(looks)}.json")

    monkeypatch.setattr(classroom.time, "sleep", sleep)
    with raises(KeyboardInterrupt):
        main(["class", "--watch", str(folder), "--out", str(out)])
    assert looks[0] == "" and "A class of 1" in looks[1] and "A class of 2" in looks[2]
    assert 'http-equiv="refresh"' in looks[2]


def test_without_a_file_that_can_be_read_there_is_no_page(tmp_path, capsys):
    (tmp_path / "bad.json").write_text("{")
    out = tmp_path / "c.html"
    for given in (["--watch", str(tmp_path / "none")], [str(tmp_path / "bad.json")]):
        assert main(["class", *given, "--out", str(out)]) == 1 and not out.exists()
    assert "[Errno" not in capsys.readouterr().err
