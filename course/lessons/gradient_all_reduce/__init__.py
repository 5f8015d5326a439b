"""Lesson 02: 280 ms or 60?"""

from course.catalogue import Lesson

LESSON = Lesson(
    number="02",
    title="280 ms or 60?",
    minutes=40,
    experiment="gradient-all-reduce",
)
