"""Lesson 05b: the hang clinic."""

from course.catalogue import Lesson, Room

LESSON = Lesson(
    number="05b",
    title="The hang clinic",
    room=Room(
        minutes="40",
        cell="mend",
        what="one patient, cured by their own hand",
        vote="the network hangs; a barrier will help",
        reply="which rank waits for what, and who should have called it? What do the ranks have to "
        "agree on?",
    ),
)
