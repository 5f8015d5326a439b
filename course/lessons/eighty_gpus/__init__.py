"""Lesson 07: eighty GPUs."""

from course.catalogue import Lesson, Room

LESSON = Lesson(
    number="07",
    title="Eighty GPUs",
    experiment="rails",
    room=Room(
        minutes="60",
        cell="two-blocks",
        what="the heat map, sorted by their own hypothesis",
        vote="the host with the lowest mean is sick",
        reply="what do the pairs of two such hosts show?",
    ),
)
