"""Lesson 00: start here."""

from course.catalogue import Lesson

LESSON = Lesson(
    number="00",
    title="Start here",
    minutes=25,
    experiment="passport",
)
