"""Lesson 06: three ways to sum."""

from course.catalogue import Lesson

LESSON = Lesson(
    number="06",
    title="Three ways to sum",
    minutes=45,
    experiment="equivalent-collectives",
)
