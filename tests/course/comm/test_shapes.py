from course.comm import shapes


def test_resnet50_has_the_counts_of_the_pull_request_and_shrinks_with_its_width():
    whole, half = shapes.resnet50(), shapes.resnet50(width=0.5)
    assert len(whole) == len(half)
    assert sum(t.nbytes < 16 * 1024 for t in whole) == 266
    assert sum(t.dtype.itemsize == 8 for t in whole) == 53
    # the last layer has its 1,000 classes at any width
    assert 0.24 < sum(t.nbytes for t in half) / sum(t.nbytes for t in whole) < 0.28
