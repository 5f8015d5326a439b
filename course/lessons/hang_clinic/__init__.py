"""Lesson 05b: the hang clinic."""

from course.catalogue import Lesson

LESSON = Lesson(
    number="05b",
    title="The hang clinic",
    minutes=40,
)
