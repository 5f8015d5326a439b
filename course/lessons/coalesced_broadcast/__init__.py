"""Lesson 03: one broadcast or three hundred?"""

from course.catalogue import Lesson

LESSON = Lesson(
    number="03",
    title="One broadcast or three hundred?",
    starts_from="A pull request's 1.63x, and its reviewers' questions",
    runs_best_with="Linux, 4 GiB",
    experiments=("coalesced-broadcast",),
)
