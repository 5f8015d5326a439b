"""Lesson 01: why does gloo slow down with every pair?"""

from course.catalogue import Lesson, Room

LESSON = Lesson(
    number="01",
    title="Why does gloo slow down with every pair?",
    experiment="gloo-scaling",
    room=Room(
        minutes="40",
        cell="law",
        what="the law, tested where it could fail",
        vote="the network: all cross one loopback (the board: *fell, by A*)",
        reply="what changes when the pairs get a second CPU, on the same loopback?",
    ),
)
