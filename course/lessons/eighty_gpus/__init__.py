"""Lesson 07: eighty GPUs."""

from course.catalogue import Lesson

LESSON = Lesson(
    number="07",
    title="Eighty GPUs",
    minutes=60,
    experiment="rails",
)
