"""Lesson 05b: the hang clinic."""

from course.catalogue import Lesson

LESSON = Lesson(
    number="05b",
    title="The hang clinic",
    starts_from="Six programs that hang or lie, and no traceback says why",
    runs_best_with="Linux",
)
