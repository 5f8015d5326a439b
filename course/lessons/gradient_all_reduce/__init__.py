"""Lesson 02: 280 ms or 60?"""

from course.catalogue import Lesson

LESSON = Lesson(
    number="02",
    title="280 ms or 60?",
    starts_from="Gradients that take five times as long as the benchmark says",
    runs_best_with="Linux, 4 GiB",
    experiments=("gradient-all-reduce",),
)
