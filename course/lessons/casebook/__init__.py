"""Lesson 08: the ward."""

from course.catalogue import Lesson

LESSON = Lesson(
    number="08",
    title="The ward",
    starts_from="Slow jobs that really happened, played on your machine",
    runs_best_with="Linux with user namespaces",
)
