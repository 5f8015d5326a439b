"""Lesson 01: why does gloo slow down with every pair?"""

from course.catalogue import Lesson, Room

LESSON = Lesson(
    number="01",
    title="Why does gloo slow down with every pair?",
    experiment="gloo-scaling",
    room=Room(
        minutes="40",
        cell="pinned",
        what="the posted script on one CPU and on two: how many had they?",
        vote="the network: all cross one loopback (the board: *fell, by A*)",
        reply="what changes when the pairs get a second CPU, on the same loopback?",
    ),
)
