"""Lesson 01: why does gloo slow down with every pair?"""

from course.catalogue import Lesson

LESSON = Lesson(
    number="01",
    title="Why does gloo slow down with every pair?",
    minutes=40,
    experiment="gloo-scaling",
)
