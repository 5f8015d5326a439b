"""Lesson 00: start here."""

from course.catalogue import Lesson, Room

LESSON = Lesson(
    number="00",
    title="Start here",
    experiment="passport",
    room=Room(
        minutes="25",
        cell="change",
        what="one argument changed, so that Cleo's two ranks show the same: in two ways",
        vote="the late rank's own clock shows it",
        reply="when does the late rank's own clock start?",
    ),
)
