"""Lesson 08: the ward."""

from course.catalogue import Lesson, Room

LESSON = Lesson(
    number="08",
    title="The ward",
    commands={"case": "play a case of the casebook in the terminal"},
    room=Room(
        minutes="10 a case",
        cell="case-1",
        what="what each suspect predicts, said before an instrument is asked",
        vote="the network",
        reply="ask for the bytes, then for the rate",
    ),
)
