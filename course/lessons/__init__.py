"""The lessons: one folder each, found by `labkit.course.lessons`."""
