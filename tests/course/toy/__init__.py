"""Lesson 09: a toy."""

from course.catalogue import Lesson

LESSON = Lesson(number="09", title="A toy", minutes=5, experiment="toy")
