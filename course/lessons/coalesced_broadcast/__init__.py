"""Lesson 03: one broadcast or three hundred?"""

from course.catalogue import Lesson, Room

LESSON = Lesson(
    number="03",
    title="One broadcast or three hundred?",
    experiment="coalesced-broadcast",
    room=Room(
        minutes="40",
        cell="ask",
        what="one letter takes one thing away; A first",
        vote="packing: every byte is copied",
        reply="both sides pack every byte. Which experiment leaves both of them their packing, and "
        "what is left of the difference there?",
    ),
)
