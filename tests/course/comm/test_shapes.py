from course.comm import shapes


def test_resnet50_has_the_counts_of_the_pull_request_and_shrinks_with_its_width():
    tensors = shapes.resnet50()
    assert len(tensors) == 320
    assert round(sum(t.nbytes for t in tensors) / 1e6, 1) == 102.4
    assert sum(t.nbytes < 16 * 1024 for t in tensors) == 266
    assert sum(t.dtype.itemsize == 8 for t in tensors) == 53
    whole, half = (sum(t.nbytes for t in shapes.resnet50(width=w)) for w in (1.0, 0.5))
    assert 0.24 < half / whole < 0.28  # the last layer has its 1,000 classes at any width
    assert len(shapes.resnet50(width=0.25)) == 320
