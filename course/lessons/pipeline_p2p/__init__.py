"""Lesson 05: the idle GPU whose input lies ready."""

from course.catalogue import Lesson

LESSON = Lesson(
    number="05",
    title="The idle GPU whose input lies ready",
    starts_from="A stage of a pipeline stands still, and nothing is broken",
    runs_best_with="Linux with user namespaces",
    experiments=("pipeline-p2p",),
)
