"""Lesson 00: start here."""

from course.catalogue import Lesson

LESSON = Lesson(
    number="00",
    title="Start here",
    starts_from="Five clocks, five times, and all of them are right",
    runs_best_with="any machine",
    experiments=("passport",),
)
