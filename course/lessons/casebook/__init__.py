"""Lesson 08: the ward."""

from course.catalogue import Lesson

LESSON = Lesson(
    number="08",
    title="The ward",
    minutes=40,
)
