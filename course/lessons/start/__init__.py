"""Lesson 00: start here."""

from course.catalogue import Lesson, Room

LESSON = Lesson(
    number="00",
    title="Start here",
    experiment="passport",
    words=1500,
    cells=32,
    room=Room(
        minutes="20",
        cell="change",
        what="one thing at a time until Ada's program shows Eve's figure",
        vote="the fastest clock is the right one",
        reply="what would the receiver of your data say at that moment?",
    ),
)
