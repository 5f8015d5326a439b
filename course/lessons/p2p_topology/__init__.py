"""Lesson 04: three copies, three speeds."""

from course.catalogue import Lesson, Room

LESSON = Lesson(
    number="04",
    title="Three copies, three speeds",
    experiment="p2p-topology",
    room=Room(
        minutes="40",
        cell="theory",
        what="two numbers from one half, tried on the other, and the board",
        vote="a queue at GPU 0's way out",
        reply="how long does each copy take when the others do not run?",
    ),
)
