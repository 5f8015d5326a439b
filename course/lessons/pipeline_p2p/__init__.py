"""Lesson 05: the idle GPU whose input lies ready."""

from course.catalogue import Lesson

LESSON = Lesson(
    number="05",
    title="The idle GPU whose input lies ready",
    minutes=40,
    experiment="pipeline-p2p",
)
