"""Lesson 06: three ways to sum."""

from course.catalogue import Lesson

LESSON = Lesson(
    number="06",
    title="Three ways to sum",
    starts_from="A published table whose rows do not agree",
    runs_best_with="Linux",
    experiments=("equivalent-collectives",),
)
