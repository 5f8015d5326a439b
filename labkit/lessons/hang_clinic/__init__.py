"""Lesson 05b: the hang clinic."""

from labkit.course.lessons import Lesson

LESSON = Lesson(
    number="05b",
    title="The hang clinic",
    starts_from="Ten programs that never end",
    runs_best_with="Linux",
)
