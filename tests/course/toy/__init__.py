"""Lesson 09: a toy."""

from course.catalogue import Lesson, Room

asks = {"vote": "the bytes", "reply": "how many are there?"}
room = Room(minutes="5", cell="run", what="the only run", **asks)
LESSON = Lesson(number="09", title="A toy", experiment="toy", room=room)
