"""Answers to exercise 4.2 that are written otherwise than the lesson's own."""


def labkits_own(tensor, way, chunk, length):
    from course.lessons.p2p_topology.programs import carry

    carry(tensor, [way], chunk=chunk)
