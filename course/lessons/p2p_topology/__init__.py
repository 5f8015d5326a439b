"""Lesson 04: three copies, three speeds."""

from course.catalogue import Lesson

LESSON = Lesson(
    number="04",
    title="Three copies, three speeds",
    minutes=40,
    experiment="p2p-topology",
)
