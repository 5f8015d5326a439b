"""Lesson 05: the send that waits for somebody else's send."""

from course.catalogue import Lesson

LESSON = Lesson(
    number="05",
    title="The send that waits for somebody else's send",
    starts_from="An idle GPU whose input lies ready",
    runs_best_with="Linux with user namespaces",
    experiments=("pipeline-p2p",),
)
