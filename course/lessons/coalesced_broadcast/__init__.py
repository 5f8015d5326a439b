"""Lesson 03: one broadcast or three hundred?"""

from course.catalogue import Lesson

LESSON = Lesson(
    number="03",
    title="One broadcast or three hundred?",
    minutes=40,
    experiment="coalesced-broadcast",
)
