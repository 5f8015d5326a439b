"""Lesson 06: three ways to sum."""

from course.catalogue import Lesson, Room

LESSON = Lesson(
    number="06",
    title="Three ways to sum",
    experiment="equivalent-collectives",
    room=Room(
        minutes="45",
        cell="bytes",
        what="the meter",
        vote="two calls, so it is the launch order",
        reply="what does each step cost alone?",
    ),
)
