import json
import re
from pathlib import Path

from pytest import mark

from course import catalogue
from course.predictions import figures, inventory, ledger, ledger_file

pytestmark = mark.usefixtures("book")


def no_letter_is_favoured(rights):
    return {rights.count(place) for place in range(4)} == {6}


def test_twelve_misconceptions_have_two_forms_each():
    pairs = inventory.questions()
    assert len(pairs) == 12
    questions = [both[form] for both in pairs.values() for form in inventory.FORMS]
    assert no_letter_is_favoured([quiz.right for quiz in questions])
    assert len({quiz.question for quiz in questions}) == 24
    assert all(len(set(quiz.options)) == 4 for quiz in questions)


def test_the_first_answer_counts_and_nothing_is_told(capsys):
    right = [figures.LETTERS[both["before"].right] for both in inventory.questions().values()]
    inventory.inventory("before", answers="".join(right))
    inventory.inventory("before", answers="a" * 12)
    printed = capsys.readouterr().out
    assert "Noted already" in printed and "right" not in printed.lower()
    known = inventory.outcome(ledger_file.load().answers)
    assert len(known) == 12 and all(rights == {"before": True} for rights in known.values())


def test_24_questions_for_a_room_are_none_of_the_inventorys():
    path = Path(inventory.__file__).with_name("questions") / "concepts.json"
    concepts = json.loads(path.read_text())
    assert len(concepts) == len({item["question"] for item in concepts}) == 24
    kept = {both[form].question for both in inventory.questions().values() for form in both}
    numbers = {lesson.number for lesson in catalogue.find().values()}
    for item in concepts:
        assert item.keys() == {"after", "question", "options", "right", "aimed_at"}
        assert item["question"] not in kept and item["after"] in numbers
        assert len(set(item["options"])) == 4
    assert no_letter_is_favoured([item["right"] for item in concepts])
    longest = [max(item["options"], key=len) == item["options"][item["right"]] for item in concepts]
    assert sum(longest) <= 10, "who takes the longest option would pass"


def test_no_question_of_the_first_form_stands_where_a_learner_has_read_before():
    readme = (catalogue.ROOT / "README.md").read_text()
    warmups = {quiz.question for quiz in ledger.warmups().values()}
    seen = [set(re.findall(r"\d+", text)) for text in [readme.partition("\n## ")[0], *warmups]]
    for both in inventory.questions().values():
        for form in inventory.FORMS:
            assert both[form].question not in warmups
            figures = set(re.findall(r"\d{2,}", both[form].question))
            assert len(figures) < 2 or not any(figures <= known for known in seen), both[form]
