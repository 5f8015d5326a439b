"""Lesson 04: three copies, three speeds."""

from course.catalogue import Lesson

LESSON = Lesson(
    number="04",
    title="Three copies, three speeds",
    starts_from="The same bytes in 4, 8 and 53 ms",
    runs_best_with="Linux with user namespaces",
    experiments=("p2p-topology",),
)
