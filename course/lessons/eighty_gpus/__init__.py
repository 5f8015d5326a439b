"""Lesson 07: eighty GPUs."""

from course.catalogue import Lesson

LESSON = Lesson(
    number="07",
    title="Eighty GPUs",
    starts_from="Logs of real clusters that report more than one network card can carry",
    runs_best_with="Linux with user namespaces",
    experiments=("rails",),
)
