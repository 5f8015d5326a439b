"""Lesson 02: 280 ms or 60?"""

from course.catalogue import Lesson, Room

LESSON = Lesson(
    number="02",
    title="280 ms or 60?",
    experiment="gradient-all-reduce",
    room=Room(
        minutes="40",
        cell="hunt-run",
        what="the sealed envelope",
        vote="the late rank explains the 280 ms (the board: *fell, by A*); "
        "c and d stay, e is not asked",
        reply="in which *call* would a late rank show, and which calls are the 280 ms?",
    ),
)
