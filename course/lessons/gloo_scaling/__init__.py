"""Lesson 01: why does gloo slow down with every pair?"""

from course.catalogue import Lesson

LESSON = Lesson(
    number="01",
    title="Why does gloo slow down with every pair?",
    starts_from="Pairs that never talk to each other",
    runs_best_with="Linux, 2 cores",
    experiments=("gloo-scaling",),
)
