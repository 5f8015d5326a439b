"""Lesson 05: the idle GPU whose input lies ready."""

from course.catalogue import Lesson, Room

LESSON = Lesson(
    number="05",
    title="The idle GPU whose input lies ready",
    experiment="pipeline-p2p",
    room=Room(
        minutes="40",
        cell="too-far",
        what="one receive too early",
        vote="bandwidth",
        reply="what does the step take if the same bytes are asked for earlier?",
    ),
)
