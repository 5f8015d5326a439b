"""The lessons: one folder each, found by `course.catalogue`."""
